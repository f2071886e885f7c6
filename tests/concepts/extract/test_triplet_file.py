import gzip

import pandas as pd
import pytest

from pyterrier_grasp.concepts import Extractor, TripletFile, captions, normalise, read_rows


def rows_of(images):
    return [
        {"sentid": int(qid), "imgid": number, "triplets": [list(t) for t in triplets]}
        for number, texts in enumerate(images.values())
        for qid, triplets in texts.items()
    ]


def test_normalise():
    assert normalise("  Hot\t Dog\n") == "hot dog"
    assert normalise(" \t ") == ""


def test_captions_follow_the_topics(dataset):
    assert [(c.qid, c.docno) for c in captions(dataset)] == [
        *(("0", "snow"), ("1", "snow"), ("2", "park"), ("3", "park"), ("4", "street"), ("5", "street"))
    ]


def test_a_caption_without_image_is_an_error(dataset, monkeypatch):
    qrels = dataset.get_qrels()
    qrels.loc[1, "label"] = 0
    monkeypatch.setattr(dataset, "get_qrels", lambda: qrels)
    with pytest.raises(ValueError, match=r"1 of 6 captions .* no relevant image in the qrels: \['1'\]"):
        captions(dataset)


def test_images_as_queries_are_an_error(dataset, monkeypatch):
    topics = dataset.get_topics().rename(columns={"query": "path"})
    monkeypatch.setattr(dataset, "get_topics", lambda: topics)
    with pytest.raises(ValueError, match=r"have no captions but \['qid', 'path'\]"):
        captions(dataset)


def test_a_repeated_qid_is_an_error(dataset, monkeypatch):
    topics = dataset.get_topics()
    topics.loc[1, "qid"] = "0"
    monkeypatch.setattr(dataset, "get_topics", lambda: topics)
    with pytest.raises(ValueError, match="'0' occurs twice"):
        captions(dataset)


def test_a_caption_without_text_is_an_error(dataset, monkeypatch):
    topics = dataset.get_topics()
    topics.loc[1, "query"] = None
    monkeypatch.setattr(dataset, "get_topics", lambda: topics)
    with pytest.raises(ValueError, match="caption '1' .* is nan, which is not a string|is None"):
        captions(dataset)


def test_file_gives_what_it_holds(dataset, write_rows):
    path = write_rows([*reversed(rows_of(dataset.images)), {"sentid": 99, "imgid": 50, "triplets": []}, ""])
    extractor = TripletFile(path)
    assert isinstance(extractor, Extractor)
    got = list(extractor.extract(dataset))
    assert got == [
        {"qid": qid, "docno": docno, "triplets": triplets}
        for docno, texts in dataset.images.items()
        for qid, triplets in texts.items()
    ]


def test_compressed_file(dataset, write_rows):
    path = write_rows(rows_of(dataset.images))
    packed = path.with_name("triplets.jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_rows(packed)) == list(read_rows(path))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ValueError, match="damaged or cut off"):
        list(read_rows(packed))
    packed.write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match="damaged or cut off"):
        list(read_rows(packed))


def test_captions_without_a_row(dataset, write_rows):
    path = write_rows(rows_of(dataset.images)[:-2])
    with pytest.raises(KeyError, match=r"no row for 2 of the 6 captions .*\['4', '5'\]"):
        list(TripletFile(path).extract(dataset))
    got = list(TripletFile(path, missing="empty").extract(dataset))
    assert [row["triplets"] for row in got[-2:]] == [[], []]


def test_a_file_without_any_row_is_an_error_even_where_empty_is_allowed(dataset, write_rows):
    with pytest.raises(KeyError, match="no row for 6 of the 6"):
        list(TripletFile(write_rows([]), missing="empty").extract(dataset))


def test_the_file_of_another_dataset(dataset, write_rows):
    rows = rows_of(dataset.images)
    for number, row in enumerate(rows):
        row["imgid"] = number // 3  # three captions an image instead of two
    with pytest.raises(ValueError, match="does not belong to this dataset: .* imgid '0' .* 'snow' and 'park'"):
        list(TripletFile(write_rows(rows)).extract(dataset))


def test_repeated_sentid(dataset, write_rows):
    rows = rows_of(dataset.images)
    with pytest.raises(ValueError, match="sentid '2' occurs twice"):
        list(TripletFile(write_rows([*rows, rows[2]])).extract(dataset))


def test_missing_file_and_bad_option(dataset, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file of triplets at .*none.jsonl"):
        list(TripletFile(tmp_path / "none.jsonl").extract(dataset))
    with pytest.raises(ValueError, match="'error' or 'empty'"):
        TripletFile(tmp_path, missing="skip")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", r"line 2: expected an object, got \[1\]"),
        ({"triplets": []}, "line 2: the field 'sentid' is missing"),
        ({"sentid": 1, "imgid": 1}, "line 2: the field 'triplets' is missing"),
        ({"sentid": 1.5, "triplets": []}, "line 2: 'sentid' must be an integer or a string, got 1.5"),
        ({"sentid": True, "triplets": []}, "line 2: 'sentid' must be"),
        ({"sentid": 1, "imgid": [], "triplets": []}, "line 2: 'imgid' must be"),
        ({"sentid": 1, "triplets": "dog"}, "line 2: 'triplets' must be a list"),
        ({"sentid": 1, "triplets": ["dog"]}, "line 2: a triplet is three strings .*'dog'"),
        ({"sentid": 1, "triplets": [["dog", "run"]]}, "line 2: a triplet is three strings"),
        ({"sentid": 1, "triplets": [["dog", "run", None]]}, "line 2: a triplet is three strings"),
        ({"sentid": 1, "triplets": ["dog"]}, "line 2"),
    ],
)
def test_malformed_rows(write_rows, row, words):
    with pytest.raises(ValueError, match=words):
        list(read_rows(write_rows([{"sentid": "0", "triplets": []}, row])))


def test_a_caption_of_two_images_fits_the_file_of_one(dataset, write_rows, monkeypatch):
    qrels = dataset.get_qrels()
    more = pd.concat([pd.DataFrame([("0", "street", 1)], columns=qrels.columns), qrels])
    monkeypatch.setattr(dataset, "get_qrels", lambda: more)
    got = list(TripletFile(write_rows(rows_of(dataset.images))).extract(dataset))
    assert [(row["qid"], row["docno"]) for row in got][:3] == [("0", "street"), ("0", "snow"), ("1", "snow")]
