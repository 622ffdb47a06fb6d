// What both Hopper kernels share: their arguments, and the line of tiles that the teams divide among themselves.

constexpr int ROWS = 64, TOKENS = 64, STAGES = 2, LATENT = 512, WIDTH = 576, PANELS = WIDTH / 64;

enum Mask { CAUSAL = 0, ANCESTORS = 1, FULL = 2 };

struct Arguments {
    const char *query, *draft_keys, *cache;
    const void *query_indptr, *cache_indptr, *cache_indices, *mask_indptr;
    const i64 *ancestors;
    const unsigned char *full_mask;
    char *partial, *out;
    float *partial_lse;
    i64 cache_stride, draft_stride;                  // bytes
    int requests, heads, teams, blocks, min_tiles, groups, mask;
    int wide_query_indptr, wide_cache_indptr, wide_cache_indices, wide_mask_indptr;
    float scale;                                     // of logits, in base 2
    float cap, cap_inner;                            // cap in base 2 (0: none); what goes into its exp2
};

__device__ __forceinline__ i64 load_index(const void *base, i64 at, int wide) {
    return wide ? static_cast<const i64 *>(base)[at] : static_cast<const int *>(base)[at];
}

struct Request { i64 first_node, first_index; int nodes, length, tiles; };

__device__ __forceinline__ Request load_request(const Arguments &a, int r) {
    Request q;
    q.first_node = load_index(a.query_indptr, r, a.wide_query_indptr);
    q.nodes = int(load_index(a.query_indptr, r + 1, a.wide_query_indptr) - q.first_node);
    q.first_index = load_index(a.cache_indptr, r, a.wide_cache_indptr);
    q.length = int(load_index(a.cache_indptr, r + 1, a.wide_cache_indptr) - q.first_index);
    q.tiles = q.nodes > 0 ? (q.length + q.nodes + TOKENS - 1) / TOKENS : 0;
    return q;
}

__device__ __forceinline__ int warp_scan(int value, int lane) {
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(~0u, value, step);
        if (lane >= step) value += other;
    }
    return value;
}

// The line of tiles, as in schedule.py, and where a team's part of it begins: its first request, and that one's start.
// Starting a request costs about as much as EXTRA tiles; they lie before its own in the line.
constexpr int EXTRA = 3;
struct Place { int share, low, high, request, start; };

__device__ __forceinline__ int tiles_at(const Arguments &a, int request) {
    const int tiles = request < a.requests ? load_request(a, request).tiles : 0;
    return tiles ? EXTRA + tiles : 0;
}

__device__ __forceinline__ Place locate(const Arguments &a, int team, int lane) {
    const int first_tiles = tiles_at(a, lane);       // most batches fit one warp, and need no second look
    int length = __reduce_add_sync(~0u, first_tiles);
    for (int base = 32; base < a.requests; base += 32) length += __reduce_add_sync(~0u, tiles_at(a, base + lane));
    const int share = max((length + a.teams - 1) / a.teams, a.min_tiles);
    const int low = team * share, high = min(low + share, length);
    int before = 0;
    for (int base = 0; base < a.requests; base += 32) {
        const int tiles = base ? tiles_at(a, base + lane) : first_tiles;
        const int end = before + warp_scan(tiles, lane);
        const unsigned after = __ballot_sync(~0u, end > low);
        if (after) {
            const int which = __ffs(after) - 1;
            return {share, low, high, base + which, __shfl_sync(~0u, end - tiles, which)};
        }
        before = __shfl_sync(~0u, end, 31);
    }
    return {share, low, high, a.requests, high};
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
