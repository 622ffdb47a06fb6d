// The Hopper kernel: attention of draft nodes against a paged latent cache, with wgmma. bf16, latent 512, rope 64.
//
// A block works on 64 rows (nodes x heads of one request) and walks a contiguous part of the line of 64-token tiles; a
// request's draft nodes are the tail of its tokens. Three warpgroups:
//   scorer    S = Q K^T, softmax, and the left half of O += P V, with P from its registers
//   helper    the right half of O += P V, with P from shared memory
//   loader    gathers rows of the cache by cp.async into two stages, two warps to a stage, so that both can be in flight
// A tile serves as K (64 tokens x 576, read along the width) and as V (its first 512 columns, read along the tokens),
// both from the same swizzled shared memory. The next tile's scores are issued behind this tile's P V, so that the
// matrix units have work while the loader's barrier is looked at; softmax overlaps with the helper's half.
// The host prepends the wrappers of the three wgmma shapes, whose operand lists nobody should have to read.

constexpr int ROWS = 64, TOKENS = 64, LATENT = 512, WIDTH = 576, PANELS = WIDTH / 64;
constexpr int PANEL_BYTES = 64 * 128;                // 64 rows of 64 bf16, 128-byte swizzle
constexpr int TILE_BYTES = PANELS * PANEL_BYTES;
constexpr int P_AT = 3 * TILE_BYTES;                 // shared memory: Q, stage 0, stage 1, P, small arrays, barriers
constexpr int FADE_AT = P_AT + PANEL_BYTES;
constexpr int INVERSE_AT = FADE_AT + ROWS * 4;
constexpr int BARRIERS_AT = INVERSE_AT + ROWS * 4;   // full[2], empty[2], p_full, p_empty
constexpr int CONSUMERS = 256, LOADERS = 64;

enum Mask { CAUSAL = 0, ANCESTORS = 1, FULL = 2 };

struct Arguments {
    const char *query, *draft_keys, *cache;
    const void *query_indptr, *cache_indptr, *cache_indices, *mask_indptr;
    const i64 *ancestors;
    const unsigned char *full_mask;
    float *partial, *partial_lse;
    char *out;
    i64 cache_stride, draft_stride;                  // bytes
    int requests, heads, teams, blocks, min_tiles, mask;
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

// The line of tiles, as in schedule.py: its length, a team's share, and where a tile or a request lies in it.
struct Line { int length, share; };

__device__ __forceinline__ Line measure_line(const Arguments &a, int lane) {
    int length = 0;
    for (int base = 0; base < a.requests; base += 32) {
        int tiles = base + lane < a.requests ? load_request(a, base + lane).tiles : 0;
        length += __reduce_add_sync(~0u, tiles);
    }
    return {length, max((length + a.teams - 1) / a.teams, a.min_tiles)};
}

// First request that ends after tile `low` of the line, and where it starts.
__device__ __forceinline__ void find_request(const Arguments &a, int low, int lane, int &request, int &start) {
    int before = 0;
    for (int base = 0; base < a.requests; base += 32) {
        int tiles = base + lane < a.requests ? load_request(a, base + lane).tiles : 0;
        int end = before + warp_scan(tiles, lane);
        unsigned after = __ballot_sync(~0u, end > low);
        if (after) {
            int which = __ffs(after) - 1;
            request = base + which;
            start = __shfl_sync(~0u, end - tiles, which);
            return;
        }
        before = __shfl_sync(~0u, end, 31);
    }
    request = a.requests;
    start = before;
}

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void barrier_init(u32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ bool barrier_done(u32 barrier, int phase) {
    u32 done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(barrier), "r"(phase) : "memory");
    return done;
}
__device__ __forceinline__ void barrier_wait(u32 barrier, int phase) {
    while (!barrier_done(barrier, phase)) {}
}
__device__ __forceinline__ void warp_arrive(u32 barrier, int lane) {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
}
__device__ __forceinline__ void consumers_sync() { asm volatile("bar.sync 1, 256;" ::: "memory"); }
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void copy_16(u32 to, const char *from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// Results of wgmma must not be read before the wait; without this the compiler knows of no order between the two.
template <int N> __device__ __forceinline__ void hold(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
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

// Shared-memory matrix descriptors, 128-byte swizzle. Along the width (K-major): groups of 8 rows are 1024 bytes apart.
// Along the tokens (MN-major): panels of 64 columns are PANEL_BYTES apart, groups of 8 tokens 1024 bytes.
__device__ __forceinline__ u64 descriptor(u32 address, int leading) {
    return u64((address & 0x3FFFF) >> 4) | u64(leading >> 4) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

__device__ __forceinline__ u32 swizzled(u32 panel, int row, int chunk) {
    return panel + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// Gather the tiles of this loader's stage. Lanes of 8 read 128 contiguous bytes of a row.
__device__ __forceinline__ void load_tile(const Arguments &a, const Request &q, int tile, u32 stage, u32 empty,
                                          int phase, int half, int lane) {
    const char *from[8];
    u32 bytes = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int token = tile * TOKENS + half * 32 + i * 4 + lane / 8;
        from[i] = a.cache;
        if (token < q.length) {
            from[i] += load_index(a.cache_indices, q.first_index + token, a.wide_cache_indices) * a.cache_stride;
            bytes |= 1u << i;
        } else if (token < q.length + q.nodes) {
            from[i] = a.draft_keys + (q.first_node + token - q.length) * a.draft_stride;
            bytes |= 1u << i;
        }
    }
    barrier_wait(empty, phase);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        int row = half * 32 + i * 4 + lane / 8;
        u32 to = swizzled(stage, row, lane & 7);
        const char *source = from[i] + (lane & 7) * 16;
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel)
            copy_16(to + panel * PANEL_BYTES, source + panel * 128, (bytes >> i & 1) * 16);
    }
}

__device__ __forceinline__ void load_query(const Arguments &a, const Request &q, int first_row, int rows, u32 shared,
                                           int thread) {
    const char *base = a.query + (q.first_node * a.heads + first_row) * (WIDTH * 2);
    for (int at = thread; at < ROWS * PANELS * 8; at += CONSUMERS) {
        int row = at / (PANELS * 8), chunk = at % (PANELS * 8);
        bool valid = first_row + row < rows;
        u32 to = swizzled(shared + chunk / 8 * PANEL_BYTES, row, chunk & 7);
        copy_16(to, valid ? base + row * (WIDTH * 2) + chunk * 16 : a.query, valid ? 16 : 0);
    }
    copies_wait();
    proxy_fence();
}

__device__ __forceinline__ void issue_scores(float (&s)[32], u32 query, u32 stage) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < WIDTH / 16; ++step) {
        int offset = step / 4 * PANEL_BYTES + step % 4 * 32;
        wgmma_scores(s, descriptor(query + offset, 16), descriptor(stage + offset, 16), step > 0);
    }
    wgmma_commit();
}

__device__ __forceinline__ bool is_visible(const Arguments &a, const Request &q, i64 mask_start, int node, int other) {
    if (other >= q.nodes || node >= q.nodes) return false;
    if (a.mask == CAUSAL) return other <= node;
    if (a.mask == ANCESTORS) return other == 0 || (a.ancestors[q.first_node + node] >> (other - 1) & 1);
    return a.full_mask[mask_start + i64(node) * (q.length + q.nodes) + q.length + other];
}

// Draft tokens behind the committed ones: hide what a row's node does not descend from, and what lies beyond the end.
__device__ __forceinline__ u32 hidden_bits(const Arguments &a, const Request &q, i64 mask_start, int tile, int row,
                                        int lane) {
    u32 hidden = 0;
#pragma unroll 1
    for (int i = 0; i < 32; ++i) {
        int token = tile * TOKENS + i / 4 * 8 + lane % 4 * 2 + i % 2;
        int node = (row + (i & 2) * 4) / a.heads;
        if (token >= q.length && !is_visible(a, q, mask_start, node, token - q.length)) hidden |= 1u << i;
    }
    return hidden;
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

__device__ __forceinline__ void fade_rows(float (&o)[128], float fade0, float fade1) {
    if (!__any_sync(~0u, fade0 != 1.0f || fade1 != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < 128; ++i) o[i] *= i & 2 ? fade1 : fade0;
}

// Write one half of the columns: final bf16 where the part is the whole request, float32 into the part's slot elsewhere.
__device__ __forceinline__ void store_half(const Arguments &a, const Request &q, const float (&o)[128], i64 slot,
                                           bool whole, int row, int rows, int in_block, int half, int lane,
                                           float inverse0, float inverse1) {
#pragma unroll
    for (int below = 0; below < 2; ++below) {
        if (row + below * 8 >= rows) continue;
        float inverse = below ? inverse1 : inverse0;
        i64 out_row = q.first_node * a.heads + row + below * 8;
        i64 part_row = slot * ROWS + in_block + below * 8;
        int column = half * 256 + lane % 4 * 2;
        if (whole) {
            u32 *to = reinterpret_cast<u32 *>(a.out + (out_row * LATENT + column) * 2);
#pragma unroll
            for (int j = 0; j < 32; ++j)
                to[j * 4] = pack_bf16(o[j * 4 + below * 2] * inverse, o[j * 4 + below * 2 + 1] * inverse);
        } else {
            float2 *to = reinterpret_cast<float2 *>(a.partial + part_row * LATENT + column);
#pragma unroll
            for (int j = 0; j < 32; ++j)
                to[j * 4] = make_float2(o[j * 4 + below * 2] * inverse, o[j * 4 + below * 2 + 1] * inverse);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1) attend(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(1024) char memory[];
    const u32 base = shared_address(memory);
    const u32 query = base, stages = base + TILE_BYTES, p_panel = base + P_AT, barriers = base + BARRIERS_AT;
    const u32 full = barriers, empty = barriers + 16, p_full = barriers + 32, p_empty = barriers + 40;
    float *fades = reinterpret_cast<float *>(memory + FADE_AT);
    float *inverses = reinterpret_cast<float *>(memory + INVERSE_AT);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = warp / 4;
    const int block = blockIdx.x, team = blockIdx.y;

    if (thread == 0) {
        for (int i = 0; i < 2; ++i) {
            barrier_init(full + i * 8, LOADERS);
            barrier_init(empty + i * 8, CONSUMERS / 32);
        }
        barrier_init(p_full, 4);
        barrier_init(p_empty, 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const Line line = measure_line(a, lane);
    const int low = team * line.share, high = min(low + line.share, line.length);
    int request, start;
    find_request(a, low, lane, request, start);
    __syncthreads();

    int count = 0;                                   // tiles walked so far: stage and phase of every barrier
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        const int mine = warp / 2 % 2, half = warp % 2;
        for (; start < high; ++request) {
            const Request q = load_request(a, request);
            const int begin = max(low - start, 0), stop = min(high - start, q.tiles);
            start += q.tiles;
            if (block * ROWS >= q.nodes * a.heads) continue;
            for (int tile = begin; tile < stop; ++tile, ++count) {
                if (count % 2 != mine) continue;
                load_tile(a, q, tile, stages + mine * TILE_BYTES, empty + mine * 8, (count / 2 & 1) ^ 1, half, lane);
                copies_wait();
                proxy_fence();
                barrier_arrive(full + mine * 8);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    const int in_block = warp % 4 * 16 + lane / 4;   // this thread's rows: in_block and in_block + 8
    const int row = block * ROWS + in_block;
    for (; start < high; ++request) {
        const Request q = load_request(a, request);
        const int begin = max(low - start, 0), stop = min(high - start, q.tiles);
        const i64 slot = i64(team + request) * a.blocks + block;
        const int rows = q.nodes * a.heads;
        start += q.tiles;
        if (block * ROWS >= rows || begin >= stop) continue;
        load_query(a, q, block * ROWS, rows, query, thread);
        consumers_sync();
        float o[128];
#pragma unroll
        for (int i = 0; i < 128; ++i) o[i] = 0.0f;
        const bool whole = stop - begin == q.tiles;

        if (group == 0) {
            const i64 mask_start = a.mask == FULL ? load_index(a.mask_indptr, request, a.wide_mask_indptr) : 0;
            float top0 = -INFINITY, top1 = -INFINITY, sum0 = 0.0f, sum1 = 0.0f;
            float s[32];
            barrier_wait(full + count % 2 * 8, count / 2 & 1);
            issue_scores(s, query, stages + count % 2 * TILE_BYTES);
            wgmma_wait<0>();
            hold(s);
            for (int tile = begin; tile < stop; ++tile, ++count) {
                if (a.cap > 0.0f) {
#pragma unroll
                    for (int i = 0; i < 32; ++i)     // tanh(x) = 1 - 2 / (exp(2x) + 1), right at both ends
                        s[i] = a.cap - 2.0f * a.cap * reciprocal(exp2_fast(s[i] * a.cap_inner) + 1.0f);
                }
                const float scale = a.cap > 0.0f ? 1.0f : a.scale;
                if ((tile + 1) * TOKENS > q.length) {
                    u32 hidden = hidden_bits(a, q, mask_start, tile, row, lane);
#pragma unroll
                    for (int i = 0; i < 32; ++i) s[i] = hidden >> i & 1 ? -INFINITY : s[i];
                }
                float most0 = s[0], most1 = s[2];
#pragma unroll
                for (int i = 0; i < 32; ++i) {
                    if (i & 2) most1 = fmaxf(most1, s[i]); else most0 = fmaxf(most0, s[i]);
                }
                const float higher0 = fmaxf(top0, quad_max(most0) * scale), higher1 = fmaxf(top1, quad_max(most1) * scale);
                const float anchor0 = higher0 == -INFINITY ? 0.0f : higher0, anchor1 = higher1 == -INFINITY ? 0.0f : higher1;
                const float fade0 = exp2_fast(top0 - anchor0), fade1 = exp2_fast(top1 - anchor1);
                top0 = higher0, top1 = higher1;
                sum0 *= fade0, sum1 *= fade1;
                u32 p[16];
#pragma unroll
                for (int i = 0; i < 32; i += 2) {
                    const float anchor = i & 2 ? anchor1 : anchor0;
                    const float x = exp2_fast(fmaf(s[i], scale, -anchor)), y = exp2_fast(fmaf(s[i + 1], scale, -anchor));
                    if (i & 2) sum1 += x + y; else sum0 += x + y;
                    p[i / 2] = pack_bf16(x, y);
                }
                barrier_wait(p_empty, (count & 1) ^ 1);
                u32 p_row = swizzled(p_panel, in_block, 0) + lane % 4 * 4;
                asm volatile("" : "+r"(p_row));      // or the compiler keeps sixteen addresses over the loop, and spills
#pragma unroll
                for (int i = 0; i < 16; ++i) {
                    u32 to = (p_row ^ (i / 2 << 4)) + i % 2 * 1024;
                    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(p[i]) : "memory");
                }
                if (lane % 4 == 0) fades[in_block] = fade0, fades[in_block + 8] = fade1;
                proxy_fence();
                warp_arrive(p_full, lane);
                fade_rows(o, fade0, fade1);
                const int stage = count % 2;
                wgmma_fence();
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    u32 at = stages + stage * TILE_BYTES + step * 2048;
                    wgmma_values_registers(o, p[step * 4], p[step * 4 + 1], p[step * 4 + 2], p[step * 4 + 3],
                                           descriptor(at, PANEL_BYTES));
                }
                wgmma_commit();
                if (tile + 1 < stop) {
                    const int next = (count + 1) % 2, phase = (count + 1) / 2 & 1;
                    const bool late = !__all_sync(~0u, barrier_done(full + next * 8, phase));
                    if (late) {
                        wgmma_wait<0>();
                        warp_arrive(empty + stage * 8, lane);
                        barrier_wait(full + next * 8, phase);
                    }
                    __syncwarp();
                    issue_scores(s, query, stages + next * TILE_BYTES);
                    if (!late) {
                        wgmma_wait<1>();
                        warp_arrive(empty + stage * 8, lane);
                    }
                    wgmma_wait<0>();
                    hold(s);
                } else {
                    wgmma_wait<0>();
                    warp_arrive(empty + stage * 8, lane);
                }
                hold(o);
            }
            sum0 = quad_sum(sum0), sum1 = quad_sum(sum1);
            const float inverse0 = sum0 > 0.0f ? reciprocal(sum0) : 0.0f, inverse1 = sum1 > 0.0f ? reciprocal(sum1) : 0.0f;
            if (lane % 4 == 0) {
                inverses[in_block] = inverse0, inverses[in_block + 8] = inverse1;
                if (!whole && row < rows)
                    a.partial_lse[slot * ROWS + in_block] = sum0 > 0.0f ? top0 + log2f(sum0) : -INFINITY;
                if (!whole && row + 8 < rows)
                    a.partial_lse[slot * ROWS + in_block + 8] = sum1 > 0.0f ? top1 + log2f(sum1) : -INFINITY;
            }
            consumers_sync();
            asm volatile("griddepcontrol.launch_dependents;");
            store_half(a, q, o, slot, whole, row, rows, in_block, 0, lane, inverse0, inverse1);
        } else {
            for (int tile = begin; tile < stop; ++tile, ++count) {
                const int stage = count % 2;
                barrier_wait(p_full, count & 1);
                fade_rows(o, fades[in_block], fades[in_block + 8]);
                barrier_wait(full + stage * 8, count / 2 & 1);
                wgmma_fence();
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    u32 at = stages + stage * TILE_BYTES + 4 * PANEL_BYTES + step * 2048;
                    wgmma_values_shared(o, descriptor(p_panel + step * 32, 16), descriptor(at, PANEL_BYTES));
                }
                wgmma_commit();
                wgmma_wait<0>();
                hold(o);
                warp_arrive(empty + stage * 8, lane);
                warp_arrive(p_empty, lane);
            }
            consumers_sync();
            asm volatile("griddepcontrol.launch_dependents;");
            store_half(a, q, o, slot, whole, row, rows, in_block, 1, lane, inverses[in_block], inverses[in_block + 8]);
        }
    }
}

// Sum of a row's parts, in order. A block takes one row; `blockDim.x / 128` groups share its parts, four columns a thread.
extern "C" __global__ void __launch_bounds__(512) merge(const __grid_constant__ Arguments a) {
    constexpr int MOST = 1024;
    __shared__ float weights[MOST];
    __shared__ float4 sums[4][128];
    const int thread = threadIdx.x, lane = thread % 32, groups = blockDim.x / 128, group = thread / 128;
    const int request = blockIdx.y, row = blockIdx.x;
    const Request q = load_request(a, request);
    const Line line = measure_line(a, lane);
    int before = 0;
    for (int base = 0; base < request; base += 32)
        before += __reduce_add_sync(~0u, base + lane < request ? load_request(a, base + lane).tiles : 0);
    const int first = before / line.share, last = (before + q.tiles - 1) / line.share, parts = last - first + 1;
    const i64 first_row = (i64(first + request) * a.blocks) * ROWS + row, step = i64(a.blocks) * ROWS;
    // Also where there is nothing to do: a grid that ends without waiting lets what follows overtake `attend`.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (parts <= 1 || row >= q.nodes * a.heads) return;
    if (thread < 32) {
        float top = -INFINITY, sum = 0.0f;
        for (int i = lane; i < parts; i += 32) top = fmaxf(top, weights[i] = a.partial_lse[first_row + i * step]);
        for (int mask = 16; mask; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
        const float anchor = top == -INFINITY ? 0.0f : top;
        for (int i = lane; i < parts; i += 32) sum += weights[i] = exp2f(weights[i] - anchor);
        for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
        const float inverse = sum > 0.0f ? reciprocal(sum) : 0.0f;
        for (int i = lane; i < parts; i += 32) weights[i] *= inverse;
    }
    __syncthreads();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float *from = a.partial + first_row * LATENT + thread % 128 * 4;
#pragma unroll 8
    for (int i = group; i < parts; i += groups) {
        const float4 x = *reinterpret_cast<const float4 *>(from + i * step * LATENT);
        const float w = weights[i];
        sum.x += w * x.x, sum.y += w * x.y, sum.z += w * x.z, sum.w += w * x.w;
    }
    sums[group][thread % 128] = sum;
    __syncthreads();
    if (group > 0) return;
    for (int i = 1; i < groups; ++i) {
        const float4 x = sums[i][thread];
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    const i64 out_row = q.first_node * a.heads + row;
    *reinterpret_cast<uint2 *>(a.out + (out_row * LATENT + thread * 4) * 2) =
        make_uint2(pack_bf16(sum.x, sum.y), pack_bf16(sum.z, sum.w));
}
