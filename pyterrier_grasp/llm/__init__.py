"""Asking a chat model many questions, with every answer kept."""

from pyterrier_grasp.llm.client import ChatClient, CostLimit
from pyterrier_grasp.llm.prices import Estimate, Prices
from pyterrier_grasp.llm.request import Answer, ChatRequest, Usage

__all__ = ["Answer", "ChatClient", "ChatRequest", "CostLimit", "Estimate", "Prices", "Usage"]
