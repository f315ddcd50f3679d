"""The outside reference: a model's weights in `transformers`' own class, for tests and benchmarks."""

from transformers import LlamaConfig, LlamaForCausalLM


def halves(weight, head_dim):
    """Rows of a query or key matrix for a rotary embedding that turns (i, i + D/2); ours turns (2i, 2i + 1)."""
    heads = weight.view(-1, head_dim // 2, 2, weight.size(1))  # (heads, D/2, 2, C)
    return heads.transpose(1, 2).reshape(weight.shape)


def llama(model, permute=halves):
    """The same weights in `transformers`' own class."""
    config = model.config
    theirs = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        intermediate_size=config.d_ff,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.context_length,
        rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        eos_token_id=None,
        bos_token_id=None,
    )
    names = {
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attention.": "self_attn.",
        "ffn.": "mlp.",
        "embedding": "embed_tokens",
    }
    weights = {}
    for name, weight in model.state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight = permute(weight, config.head_dim)
        for ours, their in names.items():
            name = name.replace(ours, their)
        weights[f"model.{name}"] = weight
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    made = LlamaForCausalLM(theirs)
    made.load_state_dict(weights, assign=True)
    return made.eval()
