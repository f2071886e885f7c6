"""Asking a chat model many questions, with every answer kept."""

from pyterrier_grasp.llm.request import Answer, ChatRequest, Usage

__all__ = ["Answer", "ChatRequest", "Usage"]
