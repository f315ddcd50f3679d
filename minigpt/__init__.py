"""MiniGPT: the package behind *The Next Token*. Its public names read like the book's table of contents."""

from minigpt.choosing import EntropyTemperature, best_of_n, majority_vote, minimum_bayes_risk, pass_at_k
from minigpt.config import GPTConfig
from minigpt.costs import generation_flops, kv_bytes, tokens_through_model, users_that_fit
from minigpt.generation import generate, generate_naive, stream, stream_text, token_log_probs
from minigpt.kv_cache import AttentionRecorder, GrowingKVCache, KVCache, SlidingWindowCache
from minigpt.model import MiniGPT
from minigpt.pretrained import load
from minigpt.processors import (
    Epsilon,
    Eta,
    FrequencyPenalty,
    MinP,
    NoRepeatNGram,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)
from minigpt.sampling import SamplingParams, draw
from minigpt.search import Hypothesis, beam_search, diverse_beam_search, exact_search, gnmt
from minigpt.shapes import MODELS, ModelShape

__all__ = [
    "GPTConfig",
    "MiniGPT",
    "load",
    "generate_naive",
    "generate",
    "stream",
    "stream_text",
    "token_log_probs",
    "Temperature",
    "TopK",
    "TopP",
    "MinP",
    "Typical",
    "Epsilon",
    "Eta",
    "TopNSigma",
    "RepetitionPenalty",
    "FrequencyPenalty",
    "PresencePenalty",
    "NoRepeatNGram",
    "SamplingParams",
    "draw",
    "beam_search",
    "diverse_beam_search",
    "exact_search",
    "gnmt",
    "Hypothesis",
    "best_of_n",
    "majority_vote",
    "minimum_bayes_risk",
    "pass_at_k",
    "EntropyTemperature",
    "KVCache",
    "GrowingKVCache",
    "SlidingWindowCache",
    "AttentionRecorder",
    "ModelShape",
    "MODELS",
    "tokens_through_model",
    "generation_flops",
    "kv_bytes",
    "users_that_fit",
]
