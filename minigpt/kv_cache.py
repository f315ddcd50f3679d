"""The KV cache: keys and values of the text so far, kept so that they are computed once. Chapter 08.

Dimension key: B batch, T new tokens in this call, S keys visible after it, H_kv KV heads, D head size.
"""

import torch


class KVCache:
    """A preallocated key-value cache with one position counter.

    Every layer writes its keys and values with `append`; `length` stays put until the model, after its last layer,
    calls `advance` once. So all layers of one forward pass see the same positions.

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
            q: the new queries, (B, H, T, D); offered to caches that weigh their keys, unused here.

        Returns:
            All keys and all values, (B, H_kv, S, D), oldest first.

        Raises:
            ValueError: more rows than the cache has, or more tokens than `capacity`.
        """
        if k.size(0) != self.batch_size:
            raise ValueError(f"{k.size(0)} rows for a cache of batch_size={self.batch_size}: make one for this batch")
        start, end = self.length, self.length + k.size(2)
        if end > self.capacity:
            raise ValueError(
                f"{end} tokens do not fit a cache of capacity={self.capacity}: make a larger one, or truncate() first"
            )
        if self._keys is None:
            shape = (self.config.n_layers, self.batch_size, k.size(1), self.capacity, k.size(3))
            self._keys, self._values = k.new_zeros(shape), v.new_zeros(shape)
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
