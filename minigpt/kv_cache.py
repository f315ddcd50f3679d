"""The KV cache: keys and values of the text so far, kept so that they are computed once. Chapter 08.

`KVCache` is preallocated; `GrowingKVCache` is what one writes first; `SlidingWindowCache` forgets what is old, so that
its memory stays the same; `AttentionRecorder` goes around any of them. The model treats all alike.

Dimension key: B batch, T new tokens in this call, S keys visible after it, L layers, H query heads, H_kv KV heads,
D head size, W window, P prompt columns.
"""

import math
import numbers

import torch
import torch.nn.functional as F


class KVCache:
    """A preallocated key-value cache with one position counter.

    Every layer writes its keys and values with `append`; `length` stays put until the model, after its last layer,
    calls `advance` once. So all layers of one forward pass see the same positions. It counts the tokens that went in;
    a cache that forgets holds fewer keys than that (`token_positions`).

    Args:
        config: the model's `GPTConfig`.
        batch_size: number of rows, B.
        capacity: most tokens it can hold; storage is made at the first `append`, with the keys' dtype and device.

    Raises:
        ValueError: `batch_size` or `capacity` below 1.
    """

    def __init__(self, config, batch_size, capacity):
        if batch_size < 1 or capacity < 1:
            raise ValueError(f"batch_size={batch_size} and capacity={capacity} must be at least 1")
        self.config, self.batch_size, self.capacity = config, batch_size, capacity
        self.length = 0
        self._keys = self._values = None  # each (L, B, H_kv, capacity, D)

    @property
    def token_positions(self):
        """Positions in the text of the keys held, oldest first: (S,) int64."""
        return torch.arange(self.length)

    @property
    def nbytes(self):
        """Bytes of the tensors really held; 0 before the first `append`."""
        return 0 if self._keys is None else self._keys.nbytes + self._values.nbytes

    def positions(self, T):
        """Rotary positions of the next `T` tokens: (T,) int64."""
        return torch.arange(self.length, self.length + T)

    def columns(self, T):
        """Columns of the text that the keys of a call with `T` new tokens stand in, oldest first: (S,) int64."""
        return torch.arange(self.length + T)

    def mask(self, T):
        """What each of `T` new queries may see, aligned bottom-right: (T, S) bool, or `None` for everything."""
        if T == 1:
            return None
        return torch.ones(T, self.length + T, dtype=torch.bool).tril(self.length)

    def append(self, layer, k, v, q=None):
        """Write the new keys and values of one layer and return all that its queries may look at.

        Args:
            layer: index of the layer.
            k, v: new keys (rotated) and values, (B, H_kv, T, D).
            q: the new queries, (B, H, T, D); offered to whatever weighs the keys, unused here.

        Returns:
            All keys and all values, (B, H_kv, S, D), oldest first.

        Raises:
            ValueError: more rows than the cache has, or more tokens than `capacity`.
        """
        self._check_rows(k)
        start, end = self.length, self.length + k.size(2)
        if end > self.capacity:
            raise ValueError(
                f"{end} tokens do not fit a cache of capacity={self.capacity}: make a larger one, or truncate() first"
            )
        self._make_storage(k, v, self.capacity)
        self._keys[layer, :, :, start:end] = k
        self._values[layer, :, :, start:end] = v
        return self._keys[layer, :, :, :end], self._values[layer, :, :, :end]

    def advance(self, T):
        """Count `T` tokens as stored: the model calls this once a forward pass, after its last layer."""
        self.length += T

    def truncate(self, length):
        """Forget all but the first `length` tokens.

        Raises:
            ValueError: `length` negative or above what is stored.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"truncate({length}): the cache holds {self.length} tokens, ask for 0 to {self.length}")
        self.length = length

    def reset(self):
        """Forget everything; the storage is kept for the next text."""
        self.length = 0

    def reorder(self, rows):
        """Make row i a copy of the old row `rows[i]`; `len(rows)` may differ from B (one prefill fans out to beams).

        Raises:
            ValueError: a row index outside the batch.
        """
        rows = torch.as_tensor(rows)
        if rows.numel() == 0 or rows.min() < 0 or rows.max() >= self.batch_size:
            raise ValueError(f"reorder({rows.tolist()}): rows must be a non-empty list of 0 to {self.batch_size - 1}")
        rows = rows.tolist()
        if self._keys is not None:
            self._keys, self._values = self._reordered(self._keys, rows), self._reordered(self._values, rows)
        self.batch_size = len(rows)

    def _check_rows(self, k):
        if k.size(0) != self.batch_size:
            raise ValueError(f"{k.size(0)} rows for a cache of batch_size={self.batch_size}: make one for this batch")

    def _make_storage(self, k, v, slots):
        if self._keys is None:
            shape = (self.config.n_layers, self.batch_size, k.size(1), slots, k.size(3))
            self._keys, self._values = k.new_zeros(shape), v.new_zeros(shape)

    def _reordered(self, stored, rows):
        """Storage with the rows in place; copies only the columns in use of rows that move."""
        filled = stored[:, :, :, : self.length]
        if len(rows) == self.batch_size:
            moved = {i: filled[:, row].clone() for i, row in enumerate(rows) if i != row}
        else:
            moved = {i: filled[:, row] for i, row in enumerate(rows)}
            stored = stored.new_empty((stored.size(0), len(rows), *stored.shape[2:]))
        for i, row in moved.items():
            stored[:, i, :, : self.length] = row
        return stored


class GrowingKVCache(KVCache):
    """A cache without a capacity: each call makes larger tensors with `torch.cat` and copies all old keys into them.

    That is the shortest way to write one, but n calls of one token copy about n²/2 keys a layer.

    Args:
        config: the model's `GPTConfig`.
        batch_size: number of rows, B.
    """

    def __init__(self, config, batch_size):
        super().__init__(config, batch_size, capacity=math.inf)
        self._keys, self._values = {}, {}  # layer: (B, H_kv, S, D)

    @property
    def nbytes(self):
        """Bytes of the tensors really held: those of the tokens in it, no more."""
        return sum(stored.nbytes for stored in (*self._keys.values(), *self._values.values()))

    def append(self, layer, k, v, q=None):
        """Join the new keys and values of one layer to the old; arguments and result as in `KVCache`."""
        self._check_rows(k)
        for held, new in ((self._keys, k), (self._values, v)):
            old = held.get(layer, new[:, :, :0])[:, :, : self.length]  # without what a failed call may have left
            held[layer] = torch.cat((old, new), 2)
        return self._keys[layer], self._values[layer]

    def truncate(self, length):
        """Forget all but the first `length` tokens, and give their memory back; raises as `KVCache.truncate`."""
        super().truncate(length)
        for held in (self._keys, self._values):
            held.update({layer: stored[:, :, :length].clone() for layer, stored in held.items()})

    def reset(self):
        """Forget everything and give the memory back."""
        super().reset()
        self._keys, self._values = {}, {}

    def _reordered(self, stored, rows):
        return {layer: old[rows] for layer, old in stored.items()}


class SlidingWindowCache(KVCache):
    """Keeps the last `window` tokens in a ring: token j stands in slot j mod W, so memory is O(W) for any length.

    Each query sees its last W keys, its own among them. The keys keep the rotary positions they have in the text, as
    Mistral's do; nothing is rotated again. What has left the window still has an influence: the keys of a layer carry
    what their tokens saw in their own windows in the layers before. A call of T tokens needs up to W + T keys of a
    layer at once, so feed a long prompt in chunks. The text still ends at the model's `context_length`.

    Source: Jiang et al. 2023, Mistral 7B (rolling buffer cache); the pattern is from Beltagy et al. 2020, Longformer.

    Args:
        config: the model's `GPTConfig`.
        batch_size: number of rows, B.
        window: keys that a query sees, W, at least 1: the query's own token counts.

    Raises:
        ValueError: `batch_size` or `window` below 1.
    """

    def __init__(self, config, batch_size, window):
        super().__init__(config, batch_size, capacity=math.inf)
        if not isinstance(window, numbers.Integral) or window < 1:
            raise ValueError(f"window={window!r} must be an integer, at least 1: a token always sees itself")
        self.window = window
        self._new = {}  # layer: keys and values of the call under way, each (B, H_kv, at most W, D)

    @property
    def token_positions(self):
        """Positions in the text of the keys held, oldest first: (min(length, W),) int64."""
        return torch.arange(max(0, self.length - self.window), self.length)

    @property
    def nbytes(self):
        """Bytes of the tensors really held: 0 before the first call, then the same between calls for any length."""
        return super().nbytes + sum(new.nbytes for pair in self._new.values() for new in pair)

    def columns(self, T):
        """Columns of the text that the keys of a call with `T` new tokens stand in, oldest first: (S,) int64."""
        return torch.arange(max(0, self.length - self.window + 1), self.length + T)

    def mask(self, T):
        """What each of `T` new queries may see, its last W keys: (T, S) bool, or `None` for everything."""
        if T == 1:
            return None
        age = self.positions(T)[:, None] - self.columns(T)  # (T, S): 0 is the query's own key
        return (age >= 0) & (age < self.window)

    def append(self, layer, k, v, q=None):
        """Set new keys and values aside, return them after those in the window; arguments and result as in `KVCache`.

        The ring changes in `advance`: until then the first new queries need keys that the last ones push out.
        """
        self._check_rows(k)
        self._make_storage(k, v, self.window)
        self._new[layer] = k[:, :, -self.window :].clone(), v[:, :, -self.window :].clone()
        slots = self.columns(0) % self.window  # the ring from its oldest key on
        k_all = torch.cat((self._keys[layer][:, :, slots], k), 2)
        return k_all, torch.cat((self._values[layer][:, :, slots], v), 2)

    def advance(self, T):
        """Count `T` tokens as stored and put them into the ring, where they push out the oldest."""
        self.length += T
        slots = self.token_positions[-T:] % self.window
        for layer, (k, v) in self._new.items():
            self._keys[layer][:, :, slots], self._values[layer][:, :, slots] = k, v
        self._new = {}

    def truncate(self, length):
        """Forget all but the first `length` tokens, as long as none has been evicted.

        Raises:
            ValueError: after an eviction; `length` negative or above what is stored.
        """
        if self.length > self.window:
            raise ValueError(
                f"truncate({length}): the first {self.length - self.window} of {self.length} tokens have left the "
                f"window of {self.window} and cannot come back: reset() and feed the text again"
            )
        super().truncate(length)


class AttentionRecorder:
    """Goes around a cache and keeps the attention maps of every call; to the model it is that cache.

    A map is softmax(q·kᵀ/√D) under the cache's mask, computed a second time beside the model, in float32 or better:
    O(T·S) numbers a layer and head, so record short texts.

    Args:
        cache: the cache to record; everything else (`length`, `mask`, `positions`, ...) is its own.
        attention_mask: (B, P) bool, `False` where the prompt is padded on the left, as the model gets it.

    Attributes:
        maps: one tensor a call, (L, B, H, T, S): the share of each query's attention that goes to each key, which adds
            up to 1; all 0 for a query of padding, which sees nothing. The keys stand in the call's `columns(T)`.
    """

    def __init__(self, cache, attention_mask=None):
        self.cache, self.attention_mask, self.maps = cache, attention_mask, []
        self._call = {}  # layer: map of the call under way, (B, H, T, S)

    def __getattr__(self, name):
        if name == "cache":  # a copy under way has none yet
            raise AttributeError(name)
        return getattr(self.cache, name)

    @property
    def nbytes(self):
        """Bytes of the tensors really held: those of the cache, and the maps."""
        return self.cache.nbytes + sum(one.nbytes for one in (*self.maps, *self._call.values()))

    def append(self, layer, k, v, q):
        """Let the cache append and compute this layer's map; arguments and result as in `KVCache`."""
        visible = self._visible(q.size(2)).to(q.device)
        k_all, v_all = self.cache.append(layer, k, v, q)
        dtype = torch.promote_types(q.dtype, torch.float32)
        keys = k_all.repeat_interleave(q.size(1) // k_all.size(1), 1)  # (B, H, S, D): query heads share KV heads
        scores = q.detach().to(dtype) @ keys.detach().to(dtype).mT / q.size(3) ** 0.5  # (B, H, T, S)
        self._call[layer] = scores.masked_fill(~visible, -torch.inf).softmax(-1).masked_fill(~visible, 0)
        return k_all, v_all

    def _visible(self, T):
        """What each new query may see: (1 or B, 1, T, S) bool."""
        columns, visible = self.cache.columns(T), self.cache.mask(T)
        visible = torch.ones(T, len(columns), dtype=torch.bool) if visible is None else visible
        if self.attention_mask is None:
            return visible[None, None]
        new = self.cache.length + T - self.attention_mask.size(1)
        real = F.pad(self.attention_mask.bool(), (0, max(new, 0)), value=True)[:, columns]  # (B, S)
        return visible & real[:, None, None]

    def advance(self, T):
        """Count `T` tokens as stored and keep the maps of the call."""
        self.cache.advance(T)
        if self._call:
            self.maps.append(torch.stack([self._call[layer] for layer in sorted(self._call)]))
        self._call = {}

    def truncate(self, length):
        """Truncate the cache; the maps lose the queries and keys that it forgets."""
        excess = self.cache.length - length
        self.cache.truncate(length)
        while excess > 0 and self.maps:
            last = self.maps.pop()
            T, S = last.shape[-2:]
            if T > excess:
                self.maps.append(last[..., : T - excess, : S - excess].clone())
            excess -= T

    def reset(self):
        """Reset the cache and forget the maps."""
        self.cache.reset()
        self.maps, self._call = [], {}

    def reorder(self, rows):
        """Reorder the cache; the maps move with the rows they belong to."""
        self.cache.reorder(rows)
        rows = torch.as_tensor(rows)
        self.maps = [one[:, rows] for one in self.maps]
        if self.attention_mask is not None:
            self.attention_mask = self.attention_mask[rows]
