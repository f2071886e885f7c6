"""GraspModel: a backbone, its trained projections and head, and the concept space, as one folder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyterrier as pt
import scipy.sparse as sp
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pyterrier_grasp.backbones import Backbone, TokenSpace, TokenStates
from pyterrier_grasp.backbones.token_space import FILE as TOKENS
from pyterrier_grasp.concepts import ConceptSpace
from pyterrier_grasp.folders import whole_folder
from pyterrier_grasp.methods import DualEncoder, Method, Space, load_method

if TYPE_CHECKING:
    from pyterrier_grasp.encoders import (
        ConceptEncoder,
        DenseEncoder,
        DocEncoder,
        ImageQueryEncoder,
        QueryEncoder,
        TextDocEncoder,
    )

_FORMAT_VERSION = 1


class GraspModel(pt.Artifact):
    """A trained dense, or dense and sparse, text-image retriever; a factory of PyTerrier encoders.

    On disk: ``config.json`` (backbone reference, method and options, ``w``, metrics), ``model.safetensors`` (what was
    trained), ``space/`` (the concept or token space) and ``pt_meta.json``. The frozen backbone is referred to, not
    copied.

    Args:
        backbone: The frozen backbone.
        method: The method it was trained with.
        encoder: The trained module.
        space: The concept or token space; None for a method without a sparse branch.
        w: Weight of the sparse score in fusion: the paper's 0.1, or the one chosen on validation.
        metrics: What training reported, JSON-able; kept in ``config.json``.
        path: The folder, once saved.
    """

    ARTIFACT_TYPE = "grasp_model"
    ARTIFACT_FORMAT = "grasp"
    ARTIFACT_PACKAGE_HINT = "pyterrier_grasp"

    def __init__(
        self,
        backbone: Backbone,
        method: Method,
        encoder: DualEncoder,
        space: Space | None = None,
        *,
        w: float = 0.1,
        metrics: dict[str, Any] | None = None,
        path: str | Path | None = None,
    ) -> None:
        super().__init__(pt.Artifact.NO_PATH if path is None else path)
        self.backbone = backbone
        self.method = method
        self.encoder = encoder.eval()
        self.space = space
        self.w = w
        self.metrics = metrics or {}
        self._fingerprint: str | None = None

    @property
    def device(self) -> torch.device:
        """Where the trained part lives."""
        return self.encoder.temperature.device

    def to(self, device: str | torch.device) -> "GraspModel":
        """Move backbone and encoder to ``device``; returns self."""
        self.backbone.to(device)
        self.encoder.to(device)
        return self

    @property
    def has_concepts(self) -> bool:
        """Whether there is a sparse branch."""
        return len(self.encoder.heads) > 0

    @property
    def fingerprint(self) -> str:
        """Stable id of everything that decides the vectors: backbone, weights, method and concepts; 16 hex digits."""
        if self._fingerprint is None:
            options = {name: getattr(self.method, name) for name in self.method.encoding_options}
            digest = hashlib.sha256(self.backbone.fingerprint.encode())
            digest.update(json.dumps([self.method.name, options], sort_keys=True).encode())
            digest.update((self.space.fingerprint if self.space is not None else "").encode())
            for name, tensor in sorted(self.encoder.state_dict().items()):
                digest.update(f"{name}{tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    def __repr__(self) -> str:
        return f"GraspModel({self.method.name}:{self.fingerprint})"

    # -- PyTerrier encoders ------------------------------------------------------------------------------------

    def dense_encoder(self, *, batch_size: int = 64, verbose: bool = False) -> "DenseEncoder":
        """``query`` -> ``query_vec``."""
        from pyterrier_grasp.encoders import DenseEncoder

        return DenseEncoder(self, batch_size=batch_size, verbose=verbose)

    def concept_encoder(self, *, batch_size: int = 64, verbose: bool = False) -> "ConceptEncoder":
        """``query`` -> ``query_toks``.

        Raises:
            ValueError: If the model has no sparse branch.
        """
        from pyterrier_grasp.encoders import ConceptEncoder

        return ConceptEncoder(self, batch_size=batch_size, verbose=verbose)

    def query_encoder(self, *, batch_size: int = 64, verbose: bool = False) -> "QueryEncoder":
        """``query`` -> ``query_vec`` and, where there is a sparse branch, ``query_toks``, in one backbone pass."""
        from pyterrier_grasp.encoders import QueryEncoder

        return QueryEncoder(self, batch_size=batch_size, verbose=verbose)

    def doc_encoder(self, *, batch_size: int = 64, verbose: bool = False) -> "DocEncoder":
        """``path`` -> ``doc_vec`` and, where there is a sparse branch, ``toks``, in one backbone pass."""
        from pyterrier_grasp.encoders import DocEncoder

        return DocEncoder(self, batch_size=batch_size, verbose=verbose)

    def image_query_encoder(self, *, batch_size: int = 64, verbose: bool = False) -> "ImageQueryEncoder":
        """``path`` -> ``query_vec`` and, where there is a sparse branch, ``query_toks``: an image searches captions."""
        from pyterrier_grasp.encoders import ImageQueryEncoder

        return ImageQueryEncoder(self, batch_size=batch_size, verbose=verbose)

    def text_doc_encoder(self, *, batch_size: int = 64, verbose: bool = False) -> "TextDocEncoder":
        """``text`` -> ``doc_vec`` and, where there is a sparse branch, ``toks``: captions are the documents."""
        from pyterrier_grasp.encoders import TextDocEncoder

        return TextDocEncoder(self, batch_size=batch_size, verbose=verbose)

    # -- arrays ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def encode_states(
        self, tokens: TokenStates, modality: str, *, sparse: bool = True, texts: Sequence[str] | None = None
    ) -> tuple[np.ndarray, Any]:
        """Dense and sparse vectors of token states.

        Args:
            tokens: Token states of one batch.
            modality: ``text`` or ``image``.
            sparse: False skips the sparse branch.
            texts: The texts themselves, which ``visualsparta`` needs beside their states.

        Returns:
            Float32 ``[B, d]``, rows of length 1, and a float32 ``scipy.sparse.csr_array`` ``[B, |C|]`` whose dot
            products are the sparse scores (None without a sparse branch or with ``sparse=False``).
        """
        encoded = self.encoder.encode(tokens.to(self.device), modality, sparse=sparse)
        dense = encoded.dense.float().cpu().numpy()
        if not sparse or not self.has_concepts:
            return dense, None
        own = self._own_tokens(texts) if self.method.needs_own(modality) else None
        return dense, sp.csr_array(self.method.sparse_vectors(encoded.raw, modality, own).float().cpu().numpy())

    def _own_tokens(self, texts: Sequence[str] | None) -> torch.Tensor:
        if texts is None or not isinstance(self.space, TokenSpace):
            raise ValueError(f"method {self.method.name!r} needs the texts themselves beside their token states")
        return torch.from_numpy(self.space.multi_hot(self.backbone, texts).toarray()).to(self.device)

    def encode_texts(self, texts: Sequence[str], *, sparse: bool = True) -> tuple[np.ndarray, Any]:
        """One batch of texts through backbone and heads; see :meth:`encode_states`."""
        _check_batch("texts", texts)
        return self.encode_states(self.backbone.encode_text(list(texts)), "text", sparse=sparse, texts=texts)

    def encode_images(self, images: Sequence[Any], *, sparse: bool = True) -> tuple[np.ndarray, Any]:
        """One batch of images (paths or ``PIL.Image``) through backbone and heads; see :meth:`encode_states`."""
        _check_batch("images", images)
        return self.encode_states(self.backbone.encode_images(list(images)), "image", sparse=sparse)

    def to_toks(self, vectors: sp.csr_array) -> list[dict[str, float]]:
        """Sparse rows ``[n, |C|]`` as dicts concept name -> weight, strongest first."""
        if self.space is None:
            raise ValueError(f"{self!r} has no sparse space")
        names = self.space.names
        rows = []
        for start, end in zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True):
            order = np.argsort(-vectors.data[start:end], kind="stable")
            columns, values = vectors.indices[start:end][order].tolist(), vectors.data[start:end][order].tolist()
            rows.append({names[column]: value for column, value in zip(columns, values, strict=True)})
        return rows

    def concepts(self, item: Any, *, top: int | None = 10) -> list[tuple[str, float]]:
        """The strongest concepts of one text (str) or one image (``Path`` or ``PIL.Image``), weights descending.

        Args:
            item: A text, or an image as ``pathlib.Path`` or ``PIL.Image.Image``.
            top: How many; None for all active ones.

        Raises:
            ValueError: If the model has no sparse branch, ``item`` is neither a text nor an image, or an image cannot
                be read.
        """
        self._require_concepts()
        if not isinstance(item, str | Path | Image.Image):
            raise ValueError(f"item is {item!r}; give a text (str) or an image (pathlib.Path or PIL.Image.Image)")
        _, sparse = self.encode_texts([item]) if isinstance(item, str) else self.encode_images([item])
        return list(self.to_toks(sparse)[0].items())[:top]

    def _require_concepts(self) -> None:
        if not self.has_concepts:
            raise ValueError(f"{self!r} has no sparse branch; train with method='grasp' for concepts")

    # -- the same weights otherwise ----------------------------------------------------------------------------

    def with_options(self, *, w: float | None = None, **options: Any) -> "GraspModel":
        """The same weights under other options of the method, such as ``similarity="evidence"``.

        Args:
            w: Weight of the sparse score; None keeps this model's, which was chosen for its own similarity.
            **options: Options of the method that decide about encoding (``method.encoding_options``).

        Returns:
            A new model that shares the weights with this one.

        Raises:
            ValueError: For an option that the weights depend on.
        """
        for option in options:
            if option not in self.method.encoding_options:
                known = ", ".join(self.method.encoding_options) or "none"
                raise ValueError(f"{option!r} is no option of how {self.method.name!r} encodes; those are {known}")
        method = load_method(self.method.name, self.method.options() | options)
        encoder = method.build(self.backbone, self.space, seed=0)
        encoder.load_state_dict(self.encoder.state_dict(), assign=True)
        return self._like(method, encoder, self.space, self.w if w is None else w)

    def restrict(self, columns: Sequence[int] | np.ndarray) -> "GraspModel":
        """The model in a smaller token space, without training (the size-matched pruning of the paper's Figure 2a).

        Args:
            columns: The dimensions to keep, in the order wanted, int ``[n]``;
                see :func:`~pyterrier_grasp.pruning.top_activated`.

        Raises:
            ValueError: If the model's space is not a token space.
        """
        if not isinstance(self.space, TokenSpace):
            raise ValueError(f"{self!r} has no token space to prune; edit a concept space and train in it")
        space = self.space.keep(columns)
        encoder = self.method.build(self.backbone, space, seed=0)
        at = torch.as_tensor(np.asarray(columns, dtype=np.int64), device=self.device)
        state = {
            name: tensor[at] if self._per_dimension(name, tensor) else tensor
            for name, tensor in self.encoder.state_dict().items()
        }
        encoder.load_state_dict(state, assign=True)
        return self._like(self.method, encoder, space, self.w)

    def _per_dimension(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether a parameter has a row a dimension: a head's ``weight``, and its ``bias`` unless all share one."""
        parts = name.split(".")
        return parts[0] == "heads" and len(parts) == 3 and len(tensor) == len(self.space or ())

    def _like(self, method: Method, encoder: DualEncoder, space: Space | None, w: float) -> "GraspModel":
        return GraspModel(self.backbone, method, encoder, space, w=w, metrics=self.metrics).to(self.device)

    # -- disk --------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, overwrite: bool = False) -> "GraspModel":
        """Write the model folder; it appears whole or not at all.

        Args:
            path: The folder to make.
            overwrite: Replace an existing folder.

        Returns:
            self, with ``path`` set.

        Raises:
            FileExistsError: If ``path`` exists and ``overwrite`` is False.
        """
        path = Path(path)
        if path.exists() and not overwrite:
            raise FileExistsError(f"{path} exists; choose another folder or give overwrite=True")
        config = {
            "version": _FORMAT_VERSION,
            "backbone": self.backbone.spec(),
            "backbone_fingerprint": self.backbone.fingerprint,
            "space_fingerprint": None if self.space is None else self.space.fingerprint,
            "method": self.method.name,
            "options": self.method.options(),
            "w": self.w,
            "metrics": self.metrics,
            "fingerprint": self.fingerprint,
        }
        meta = {"type": self.ARTIFACT_TYPE, "format": self.ARTIFACT_FORMAT, "package_hint": self.ARTIFACT_PACKAGE_HINT}
        with whole_folder(path) as folder:
            state = {name: t.detach().cpu().contiguous() for name, t in self.encoder.state_dict().items()}
            save_file(state, folder / "model.safetensors")
            if self.space is not None:
                self.space.save(folder / "space")
            (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
            (folder / "pt_meta.json").write_text(json.dumps(meta) + "\n", encoding="utf-8")
        self.path = path
        return self

    @classmethod
    def load(  # type: ignore[override]
        cls, path: str | Path, *, backbone: Backbone | None = None, device: str | None = None
    ) -> "GraspModel":
        """Open a model folder.

        Args:
            path: A folder that :meth:`save` made.
            backbone: Use this backbone instead of the one the folder refers to (after a move, for example).
            device: Where to compute; None takes a GPU if there is one.

        Raises:
            FileNotFoundError: If the folder or one of its files is missing.
            ValueError: If a file is damaged, or backbone or concepts are not those the model was trained on.
        """
        path = Path(path)
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} holds no GRASP model (config.json is missing)")
        config = _read_config(path / "config.json")
        if config["version"] > _FORMAT_VERSION:
            raise ValueError(f"{path} has model format {config['version']}; this version reads up to {_FORMAT_VERSION}")
        if not (path / "model.safetensors").is_file():
            raise FileNotFoundError(f"{path} is incomplete: model.safetensors is missing")
        if backbone is None:
            backbone = Backbone.from_spec(config["backbone"])
        if backbone.fingerprint != config["backbone_fingerprint"]:
            raise ValueError(
                f"{path} was trained on backbone {config['backbone_fingerprint']}, but {backbone.source} is "
                f"{backbone.fingerprint}; give the same weights and settings through backbone="
            )
        method = load_method(config["method"], config["options"])
        space = _open_space(path / "space") if method.space_kind is not None else None
        if space is not None and space.fingerprint != config["space_fingerprint"]:
            raise ValueError(
                f"the concepts in {path / 'space'} were edited after the training, and the weights no longer belong to "
                "them; put the old files back, or train on the edited space"
            )
        encoder = method.build(backbone, space, seed=0)
        try:
            encoder.load_state_dict(load_file(path / "model.safetensors"))
        except (SafetensorError, RuntimeError) as error:
            raise ValueError(f"{path / 'model.safetensors'} is damaged or of another model: {error}") from error
        model = cls(backbone, method, encoder, space, w=config["w"], metrics=config["metrics"], path=path)
        return model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def _open_space(folder: Path) -> Space:
    return TokenSpace.load(folder) if (folder / TOKENS).is_file() else ConceptSpace(folder)


def _check_batch(name: str, batch: Any) -> None:
    if isinstance(batch, str):  # it would be taken letter by letter
        raise ValueError(f"{name} is the string {batch!r}; give a list of them")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if "backbone_fingerprint" not in config:
        raise ValueError(f"{path} is not the configuration of a GRASP model")
    return config
