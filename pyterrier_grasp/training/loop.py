"""transformers.Trainer with our validation, two learning rates and the loss terms in the log."""

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import PrinterCallback, Trainer

from pyterrier_grasp.training.module import TrainingModule
from pyterrier_grasp.training.validation import Validation


class Loop(Trainer):
    """Training loop.

    Args:
        validation: Called each epoch; None for none.
        head_learning_rate: Learning rate of the head's parameters.
        **kwargs: Of ``transformers.Trainer``; ``model`` is a :class:`TrainingModule`.
    """

    def __init__(self, *, validation: Validation | None, head_learning_rate: float, **kwargs: Any) -> None:
        # Trainer asks for a dataset to evaluate on; the validation object brings its own.
        super().__init__(eval_dataset=kwargs["train_dataset"] if validation is not None else None, **kwargs)
        self.validation = validation
        self.head_learning_rate = head_learning_rate
        self._terms: dict[str, list[torch.Tensor]] = defaultdict(list)
        self.remove_callback(PrinterCallback)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW with the head in groups of its own, and no weight decay on biases and temperature."""
        if self.optimizer is None:
            module: TrainingModule = self.accelerator.unwrap_model(self.model)
            head = {id(parameter) for parameter in module.method.head_parameters(module.encoder)}
            groups: dict[tuple[bool, bool], list[nn.Parameter]] = defaultdict(list)
            for parameter in module.parameters():
                if parameter.requires_grad:
                    groups[id(parameter) in head, parameter.ndim > 1].append(parameter)
            self.optimizer = torch.optim.AdamW(
                {
                    "params": parameters,
                    "lr": self.head_learning_rate if in_head else self.args.learning_rate,
                    "weight_decay": self.args.weight_decay if is_matrix else 0.0,
                }
                for (in_head, is_matrix), parameters in groups.items()
            )
        return self.optimizer

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The module computes the loss; its terms are kept for the log."""
        module: TrainingModule = self.accelerator.unwrap_model(model)
        module.step, module.progress = self.state.global_step, self.state.global_step / max(1, self.state.max_steps)
        outputs = model(**inputs)
        for name, value in outputs.items():
            if name != "loss":
                self._terms[f"loss_{name}"].append(value)
        return outputs["loss"]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the mean of each loss term since the last log."""
        if "loss" in logs:
            logs |= {name: float(torch.stack(values).mean()) for name, values in self._terms.items()}
            self._terms.clear()
        super().log(logs, *args, **kwargs)

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        """Validate in the first process and tell the others."""
        metrics: dict[str, float] = {}
        if self.validation is not None and self.is_world_process_zero():
            encoder = self.accelerator.unwrap_model(self.model).encoder
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.validation(encoder).items()}
        if self.args.world_size > 1:
            shared = [metrics]
            dist.broadcast_object_list(shared, src=0)
            metrics = shared[0]
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics
