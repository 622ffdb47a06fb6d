"""The portable kernel, in Triton: every latent tile is loaded once, as key and as value, for all nodes and heads.

Rows are nodes x heads of one request. `teams` programs share the committed tiles of all requests, in one line, in equal
contiguous parts (`schedule.py` says the same in Python); each team has one program for each block of rows, and those
run side by side so that the cache comes from memory once. The draft's own nodes, which need the mask, are work of
programs of their own: in one loop with the committed tokens they cost registers that the main loop has not. Lengths are
read on the device and the grid never changes, so a captured graph stays valid. Every part leaves its normalised output
and log-sum-exp (base 2) in a slot of its own; `merge` adds the parts up in a fixed order, so results are the same from
run to run.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
import triton
import triton.language as tl


@triton.jit
def request_tiles(
    query_indptr, cache_indptr, cache_lengths, index, requests, HAS_LENGTHS: tl.constexpr, N: tl.constexpr
):
    """Tiles of each request's committed tokens; none for a request without nodes."""
    inside = index < requests
    nodes = tl.load(query_indptr + index + 1, mask=inside, other=0) - tl.load(
        query_indptr + index, mask=inside, other=0
    )
    if HAS_LENGTHS:
        length = tl.load(cache_lengths + index, mask=inside, other=0)
    else:
        end = tl.load(cache_indptr + index + 1, mask=inside, other=0)
        length = end - tl.load(cache_indptr + index, mask=inside, other=0)
    return tl.where(nodes > 0, tl.cdiv(length, N).to(tl.int32), 0)


@triton.jit
def request_length(cache_indptr, cache_lengths, request, HAS_LENGTHS: tl.constexpr):
    """Committed tokens of one request."""
    if HAS_LENGTHS:
        return tl.load(cache_lengths + request).to(tl.int32)
    return (tl.load(cache_indptr + request + 1) - tl.load(cache_indptr + request)).to(tl.int32)


@triton.jit
def decode_fp8(raw, DTYPE: tl.constexpr):
    """E4M3 bytes as numbers by way of float16 bits (no hardware conversion before sm_89); exact, subnormals too."""
    bits = raw.to(tl.uint16)
    half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
    return (half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0).to(DTYPE)


@triton.jit
def cap_logits(logits, scale, logit_cap, HAS_CAP: tl.constexpr):
    """Scaled logits in base 2, capped where asked; tanh by exp, which is right at both ends."""
    LOG2E: tl.constexpr = 1.4426950408889634
    if HAS_CAP:
        inner = tl.exp(tl.minimum(2.0 * (logits * scale / logit_cap), 80.0))
        return logit_cap * (1.0 - 2.0 / (inner + 1.0)) * LOG2E
    return logits * (scale * LOG2E)


@triton.jit
def accumulate(top, total, acc, logits, value):
    """One step of online softmax, in base 2; rows that have seen nothing yet keep a top of -inf."""
    higher = tl.maximum(top, tl.max(logits, 1))
    anchor = tl.where(higher == float("-inf"), 0.0, higher)
    fade = tl.exp2(top - anchor)
    weights = tl.exp2(logits - anchor[:, None])
    total = total * fade + tl.sum(weights, 1)
    acc = tl.dot(weights.to(value.dtype), value, acc * fade[:, None])
    return higher, total, acc


@triton.jit
def node_is_visible(
    ancestors, full_mask, mask_start, first_node, nodes, length, node, other, valid, MASK: tl.constexpr
):  # fmt: skip
    """Whether each row's node attends to each draft node of the tile: [M, N]."""
    inside = valid[:, None] & (other < nodes)[None, :]
    if MASK == "ancestors":
        words = tl.load(ancestors + first_node + node, mask=valid, other=0)
        bit = (words[:, None] >> tl.maximum(other - 1, 0).to(tl.int64)[None, :]) & 1
        return inside & ((bit == 1) | (other == 0)[None, :])
    if MASK == "full":
        row = mask_start + node.to(tl.int64) * (length + nodes) + length
        cell = tl.load(full_mask + row[:, None] + other[None, :], mask=inside, other=0)
        return inside & (cell != 0)
    return inside & (other[None, :] <= node[:, None])


@triton.jit
def store_part(
    partial, partial_lse, slot, block, blocks, valid, top, total, acc, LATENT: tl.constexpr, M: tl.constexpr
):
    """Write a part's normalised output and log-sum-exp; a part that saw nothing has a log-sum-exp of -inf."""
    place = (slot * blocks + block).to(tl.int64) * M + tl.arange(0, M)
    divisor = tl.where(total > 0, total, 1.0)
    normalised = acc / divisor[:, None]
    tl.store(partial + place[:, None] * LATENT + tl.arange(0, LATENT)[None, :], normalised, mask=valid[:, None])
    tl.store(partial_lse + place, tl.where(total > 0, top + tl.log2(divisor), float("-inf")), mask=valid)


@triton.jit
def attend_drafts(
    query, draft_keys, query_indptr, cache_indptr, cache_lengths, ancestors, full_mask, mask_indptr, partial,
    partial_lse, requests, heads, teams, draft_stride, scale, logit_cap,
    LATENT: tl.constexpr, ROPE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, MASK: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, HAS_CAP: tl.constexpr,
):  # fmt: skip
    """Grid (row blocks, requests): the part of each request that its own draft nodes are, with the mask."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    request = tl.program_id(1)
    first_node = tl.load(query_indptr + request).to(tl.int64)
    nodes = (tl.load(query_indptr + request + 1) - first_node).to(tl.int32)
    if block * M >= nodes * heads:
        return
    columns, rope_columns = tl.arange(0, LATENT), LATENT + tl.arange(0, ROPE)
    row = block * M + tl.arange(0, M)
    node, valid = row // heads, row < nodes * heads
    query_row = query + (first_node * heads + row)[:, None] * (LATENT + ROPE)
    query_latent = tl.load(query_row + columns[None, :], mask=valid[:, None], other=0.0)
    query_rope = tl.load(query_row + rope_columns[None, :], mask=valid[:, None], other=0.0)
    length = request_length(cache_indptr, cache_lengths, request, HAS_LENGTHS)
    mask_start = tl.load(mask_indptr + request).to(tl.int64) if MASK == "full" else first_node
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, LATENT], tl.float32)
    for tile in range(tl.cdiv(nodes, N)):
        other = tile * N + tl.arange(0, N)
        inside = other < nodes
        key_row = draft_keys + (first_node + other)[:, None] * draft_stride
        latent = tl.load(key_row + columns[None, :], mask=inside[:, None], other=0.0)
        rope = tl.load(key_row + rope_columns[None, :], mask=inside[:, None], other=0.0)
        logits = tl.dot(query_latent, tl.trans(latent))
        logits = tl.dot(query_rope, tl.trans(rope), logits)
        logits = cap_logits(logits, scale, logit_cap, HAS_CAP)
        seen = node_is_visible(ancestors, full_mask, mask_start, first_node, nodes, length, node, other, valid, MASK)
        top, total, acc = accumulate(top, total, acc, tl.where(seen, logits, float("-inf")), latent)
    slot = teams + requests + request
    store_part(partial, partial_lse, slot, block, blocks, valid, top, total, acc, LATENT, M)


@triton.jit
def attend(
    query, cache, query_indptr, cache_indptr, cache_indices, cache_lengths, partial, partial_lse, requests, heads,
    cache_stride, scale, logit_cap, key_scale, value_scale, min_tiles,
    LATENT: tl.constexpr, ROPE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK_REQUESTS: tl.constexpr,
    PAGE: tl.constexpr, HAS_LENGTHS: tl.constexpr, HAS_CAP: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """Grid (row blocks, teams): each program walks its team's part of the line of committed tiles."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    team, teams = tl.program_id(1), tl.num_programs(1)
    index = tl.arange(0, BLOCK_REQUESTS)
    tiles = request_tiles(query_indptr, cache_indptr, cache_lengths, index, requests, HAS_LENGTHS, N)
    ends = tl.cumsum(tiles, 0)
    line = tl.sum(tiles, 0)
    share = tl.maximum(tl.cdiv(line, teams), min_tiles)
    low = team * share
    high = tl.minimum(low + share, line)
    if low >= line:
        return
    first_request = tl.sum((ends <= low).to(tl.int32), 0)
    last_request = tl.sum((ends < high).to(tl.int32), 0)
    columns, rope_columns = tl.arange(0, LATENT), LATENT + tl.arange(0, ROPE)
    row = block * M + tl.arange(0, M)
    dtype = query.dtype.element_ty
    for request in range(first_request, last_request + 1):
        count = tl.sum(tl.where(index == request, tiles, 0), 0)
        start = tl.sum(tl.where(index == request, ends, 0), 0) - count
        begin = tl.maximum(low - start, 0)
        stop = tl.minimum(high - start, count)
        first_node = tl.load(query_indptr + request).to(tl.int64)
        nodes = (tl.load(query_indptr + request + 1) - first_node).to(tl.int32)
        if (begin < stop) & (block * M < nodes * heads):
            valid = row < nodes * heads
            query_row = query + (first_node * heads + row)[:, None] * (LATENT + ROPE)
            query_latent = tl.load(query_row + columns[None, :], mask=valid[:, None], other=0.0)
            query_rope = tl.load(query_row + rope_columns[None, :], mask=valid[:, None], other=0.0)
            indices = cache_indices + tl.load(cache_indptr + request)
            length = request_length(cache_indptr, cache_lengths, request, HAS_LENGTHS)
            top = tl.full([M], float("-inf"), tl.float32)
            total = tl.zeros([M], tl.float32)
            acc = tl.zeros([M, LATENT], tl.float32)
            for tile in range(begin, stop):
                token = tile * N + tl.arange(0, N)
                inside = token < length
                if PAGE == 1:
                    slot = tl.load(indices + token, mask=inside, other=0).to(tl.int64)
                else:
                    page = tl.load(indices + token // PAGE, mask=inside, other=0).to(tl.int64)
                    slot = page * PAGE + token % PAGE
                key_row = cache + slot[:, None] * cache_stride
                latent = tl.load(key_row + columns[None, :], mask=inside[:, None], other=0)
                rope = tl.load(key_row + rope_columns[None, :], mask=inside[:, None], other=0)
                if FP8:
                    latent = decode_fp8(latent, dtype)
                    rope = decode_fp8(rope, dtype)
                logits = tl.dot(query_latent, tl.trans(latent))
                logits = tl.dot(query_rope, tl.trans(rope), logits)
                logits = cap_logits(logits * key_scale, scale, logit_cap, HAS_CAP)
                logits = tl.where(inside[None, :], logits, float("-inf"))
                top, total, acc = accumulate(top, total, acc, logits, latent)
            part = team + request
            store_part(partial, partial_lse, part, block, blocks, valid, top, total, acc * value_scale, LATENT, M)


@triton.jit
def merge(
    query_indptr, cache_indptr, cache_lengths, out, partial, partial_lse, requests, heads, blocks, teams, min_tiles,
    LATENT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK_REQUESTS: tl.constexpr, BLOCK_TEAMS: tl.constexpr,
    COLUMNS: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, HAS_LENGTHS: tl.constexpr,
):  # fmt: skip
    """Grid (requests x blocks x M / ROWS, LATENT / COLUMNS): the parts of each row, weighed and added in order."""
    per_request = blocks * (M // ROWS)
    request = tl.program_id(0) // per_request
    first_row = (tl.program_id(0) % per_request) * ROWS
    first_node = tl.load(query_indptr + request).to(tl.int64)
    rows = (tl.load(query_indptr + request + 1) - first_node).to(tl.int32) * heads
    index = tl.arange(0, BLOCK_REQUESTS)
    tiles = request_tiles(query_indptr, cache_indptr, cache_lengths, index, requests, HAS_LENGTHS, N)
    share = tl.maximum(tl.cdiv(tl.sum(tiles, 0), teams), min_tiles)
    count = tl.sum(tl.where(index == request, tiles, 0), 0)
    start = tl.sum(tl.where(index < request, tiles, 0), 0)
    first_part = start // share + request
    parts = tl.where(count > 0, (start + count - 1) // share - start // share + 1, 0)
    draft_part = teams + requests + request
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    for row in range(first_row, tl.minimum(first_row + ROWS, rows)):
        every = tl.arange(0, BLOCK_TEAMS)
        lse = tl.load(partial_lse + (first_part + every) * (blocks * M) + row, mask=every < parts, other=float("-inf"))
        draft_row = draft_part.to(tl.int64) * (blocks * M) + row
        draft_lse = tl.load(partial_lse + draft_row)
        top = tl.maximum(tl.max(lse, 0), draft_lse)
        anchor = tl.where(top == float("-inf"), 0.0, top)
        draft_weight = tl.exp2(draft_lse - anchor)
        total = tl.sum(tl.exp2(lse - anchor), 0) + draft_weight
        acc = tl.load(partial + draft_row * LATENT + columns) * draft_weight
        for at in range(0, parts, PARTS):
            here = at + tl.arange(0, PARTS)
            row_here = (first_part + here).to(tl.int64) * (blocks * M) + row
            lse_here = tl.load(partial_lse + row_here, mask=here < parts, other=float("-inf"))
            values = tl.load(
                partial + row_here[:, None] * LATENT + columns[None, :], mask=(here < parts)[:, None], other=0.0
            )
            acc += tl.sum(values * tl.exp2(lse_here - anchor)[:, None], 0)
        acc = acc / tl.where(total > 0, total, 1.0)
        tl.store(out + (first_node * heads + row) * LATENT + columns, acc.to(out.dtype.element_ty))
