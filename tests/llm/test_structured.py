"""Bodies of requests, keys, and what is read from answers."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from pyterrier_grasp.llm import ChatRequest
from pyterrier_grasp.llm.dialect import Dialect
from pyterrier_grasp.llm.images import EncodedImage
from pyterrier_grasp.llm.schemas import form_of
from pyterrier_grasp.llm.structured import AskingSettings, Repair, build_body, cache_key, read_completion, read_text

SETTINGS = AskingSettings("m", 0.0, 0, 100, {})


class Part(BaseModel):
    name: str = Field(default="", description="Its name.")
    size: int | None = None


class Whole(BaseModel):
    """A whole."""

    parts: list[Part] = []
    other: Part = Field(Part(), description="Another part.")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    pair: tuple[str, int]


class Names(RootModel[list[str]]):
    pass


REQUEST = ChatRequest("a", "the question", "the system", Whole)
IMAGE = EncodedImage("data:image/jpeg;base64,AAAA", "0123", 4)


def completion(text, finish="stop", **message):
    return {"choices": [{"message": {"content": text} | message, "finish_reason": finish}]}


class TestBodies:
    def test_whole(self):
        body = build_body(SETTINGS, REQUEST, [IMAGE])
        assert body.pop("response_format") == form_of(Whole).formats["json_schema"]
        shown = {"type": "image_url", "image_url": {"url": IMAGE.url, "detail": "low"}}
        assert body == {
            "model": "m",
            "temperature": 0.0,
            "seed": 0,
            "max_tokens": 100,
            "messages": [
                {"role": "system", "content": "the system"},
                {"role": "user", "content": [shown, {"type": "text", "text": "the question"}]},
            ],
        }

    def test_dialects(self):
        dialect = Dialect("json_object", "max_completion_tokens", frozenset({"seed"}))
        body = build_body(SETTINGS, REQUEST, dialect=dialect)
        assert body["response_format"] == {"type": "json_object"}
        assert body["max_completion_tokens"] == 100 and not {"seed", "max_tokens"} & set(body)
        assert body["messages"][0]["content"] == f"the system\n\n{form_of(Whole).words}"
        bare = build_body(SETTINGS, ChatRequest("a", "b", schema=Whole), dialect=Dialect("text"))
        assert "response_format" not in bare and bare["messages"][0]["content"] == form_of(Whole).words

    def test_params_are_added(self):
        settings = AskingSettings("m", None, None, None, {"top_p": 0.5})
        assert build_body(settings, ChatRequest("a", "b")) == {
            "model": "m",
            "messages": [{"role": "user", "content": "b"}],
            "top_p": 0.5,
        }

    def test_repair(self):
        messages = build_body(SETTINGS, REQUEST, repair=Repair("wrong", "it is wrong"))["messages"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
        assert messages[2]["content"] == "wrong" and "it is wrong" in messages[3]["content"]
        assert build_body(SETTINGS, REQUEST, repair=Repair("long", "", True)) == build_body(SETTINGS, REQUEST) | {
            "max_tokens": 200
        }

    def test_strict_schema(self):
        schema = form_of(Whole).formats["json_schema"]["json_schema"]["schema"]
        assert schema["required"] == ["parts", "other"] and schema["additionalProperties"] is False
        assert schema["properties"]["other"] == {"$ref": "#/$defs/Part"}
        assert schema["$defs"]["Part"]["required"] == ["name", "size"]
        assert "default" not in json.dumps(schema) and schema["$defs"]["Part"]["properties"]["name"] == {
            "type": "string",
            "description": "Its name.",
        }


class TestKeys:
    def test_stay_the_same_in_another_process_and_release(self):
        plain = ChatRequest("a", "the question", "the system")
        assert cache_key(SETTINGS, plain) == "35ca560002aa9a3980535d711fc27ce6c5e05eac687471abd13df9857f8f4825"

    def test_every_part_counts(self):
        keys = {
            cache_key(SETTINGS, REQUEST),
            cache_key(SETTINGS, REQUEST, [IMAGE]),
            cache_key(SETTINGS, REQUEST, [IMAGE, IMAGE]),
            cache_key(SETTINGS, ChatRequest("a", "another question", "the system", Whole)),
            cache_key(SETTINGS, ChatRequest("a", "the question", "another system", Whole)),
            cache_key(SETTINGS, ChatRequest("a", "the question", "the system", Strict)),
            cache_key(SETTINGS, ChatRequest("a", "the question", "the system")),
            cache_key(SETTINGS, ChatRequest("a", "the questionthe system", "", Whole)),
        }
        assert len(keys) == 8

    def test_id_check_and_path_do_not_count(self):
        other = ChatRequest("b", "the question", "the system", Whole, (Path("x"),), check=print)
        assert cache_key(SETTINGS, other, [IMAGE]) == cache_key(SETTINGS, REQUEST, [IMAGE])

    @given(st.text(st.characters(exclude_categories=())))
    def test_any_text(self, text):
        request = ChatRequest(text, text, text)
        assert cache_key(SETTINGS, request) == cache_key(SETTINGS, ChatRequest("", text, text))
        json.dumps(build_body(SETTINGS, request), ensure_ascii=False).encode()


JSON_ANSWER = json.dumps({"parts": [{"name": 'a } "quoted" \\ {b', "size": 1}, {"name": "[é"}], "other": {"size": 2}})


class TestReading:
    def test_plain(self):
        reading = read_text(REQUEST, JSON_ANSWER)
        assert reading.problem is None and reading.value == Whole.model_validate_json(JSON_ANSWER)
        assert reading.text == JSON_ANSWER

    @pytest.mark.parametrize(
        "around",
        [
            "```json\n%s\n```",
            "Sure, here is {an answer}: %s. Shall I go on {y/n}?",
            "%s\n\n{}",
            '<think>maybe {} or {"parts": []}</think>\n%s',
            "[%s]",
            '{"parts": 7} %s',
        ],
    )
    def test_words_around_it(self, around):
        reading = read_text(REQUEST, around.replace("%s", JSON_ANSWER))
        assert reading.value == Whole.model_validate_json(JSON_ANSWER)

    @given(st.integers(1, len(JSON_ANSWER) - 1))
    def test_one_that_breaks_off_is_never_taken_for_whole(self, end):
        reading = read_text(REQUEST, JSON_ANSWER[:end])
        assert reading.value is None and reading.problem

    @given(st.text(max_size=200), st.integers(0, 200))
    def test_any_text_ends_in_a_value_or_a_problem(self, text, place):
        for answer in (text, text[:place] + JSON_ANSWER + text[place:], "{" * len(text), "[{" * 2000):
            reading = read_text(REQUEST, answer)
            assert (reading.value is None) == (reading.problem is not None)

    @given(
        st.lists(
            st.builds(Part, name=st.text(st.characters(exclude_categories=["Cs"])), size=st.integers()), max_size=4
        )
    )
    def test_any_value_comes_back(self, parts):
        whole = Whole(parts=parts)
        assert read_text(REQUEST, f"It is: {whole.model_dump_json()} OK").value == whole

    def test_line_breaks_inside_strings(self):
        assert read_text(REQUEST, '{"parts": [{"name": "two\nlines"}]}').value.parts[0].name == "two\nlines"

    def test_a_strict_model_takes_json_types(self):
        assert read_text(ChatRequest("a", "b", schema=Strict), '{"pair": ["a", 1]}').value.pair == ("a", 1)

    def test_a_list(self):
        assert read_text(ChatRequest("a", "b", schema=Names), 'Here: ["a", "b"]').value.root == ["a", "b"]

    def test_problems_are_in_words(self):
        problem = read_text(REQUEST, '{"parts": [{"name": 1, "size": "x"}]}').problem
        assert problem.startswith(
            "it does not fit the schema: parts.0.name: Input should be a valid string; parts.0.si"
        )
        many = read_text(REQUEST, json.dumps({"parts": [{"name": 1}] * 50})).problem
        assert many.endswith("; and 40 more")
        assert read_text(REQUEST, "no").problem == "there is no JSON in it"
        assert read_text(REQUEST, " \n").problem == "the answer is empty"

    def test_completions(self):
        assert read_completion(REQUEST, completion(JSON_ANSWER)).problem is None
        parts = [{"type": "text", "text": JSON_ANSWER[:9]}, {"type": "text", "text": JSON_ANSWER[9:]}]
        assert read_completion(REQUEST, completion(parts)).problem is None
        assert read_completion(REQUEST, completion(None)).problem == "the answer is empty"
        refused = read_completion(REQUEST, completion(None, refusal="No."))
        assert refused.final and refused.problem == "the model refused: No."
        assert read_completion(REQUEST, completion("", "content_filter")).final
        cut = read_completion(REQUEST, completion(JSON_ANSWER[:-1], "length"))
        assert cut.cut_off and "ran out of room" in cut.problem and not cut.final
        assert read_completion(REQUEST, completion(JSON_ANSWER, "length")).problem is None
        assert read_completion(ChatRequest("a", "b"), completion("The", "length")).cut_off
        assert read_completion(ChatRequest("a", "b"), completion("half \ud83d")).value == "half ?"
