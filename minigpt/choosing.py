"""Measures of generated text: how much it repeats itself, how varied it is. Chapters 01, 03 and 07."""


def repeated_windows(token_ids, window=20):
    """Share of a text's windows that stood in it before: above one half, the text loops.

    Args:
        token_ids: one text, a sequence of N ids.
        window: tokens a window, at least 1.

    Returns:
        A number from 0 to 1; 0 for a text with no second window.

    Raises:
        ValueError: a window below 1.
    """
    if window < 1:
        raise ValueError(f"window={window} must be at least 1 token")
    ids = [int(i) for i in token_ids]
    windows = [tuple(ids[i : i + window]) for i in range(len(ids) - window + 1)]
    return 1 - len(set(windows)) / len(windows) if windows else 0.0


def distinct_n(texts, n=2):
    """Share of all n-grams of several texts that are different: distinct-n (Li et al. 2016).

    Args:
        texts: several texts, each a sequence of ids or words.
        n: length of the n-grams, at least 1.

    Returns:
        A number from 0 to 1, higher is more varied; it falls with the amount of text, so compare equal amounts.

    Raises:
        ValueError: n below 1, or no text of n tokens.
    """
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    texts = [text.tolist() if hasattr(text, "tolist") else list(text) for text in texts]  # tensors hash by identity
    grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    if not grams:
        raise ValueError(f"no text has {n} tokens: there is no {n}-gram to count")
    return len(set(grams)) / len(grams)
