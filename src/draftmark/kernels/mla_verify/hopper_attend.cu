// The Hopper kernel: attention of draft nodes against a paged latent cache, with wgmma. bf16, latent 512, rope 64.
//
// A block works on 64 rows (nodes x heads of one request) and walks a contiguous part of the line of 64-token tiles; a
// request's draft nodes are the tail of its tokens. Three kinds of warps:
//   scorer    S = Q K^T, softmax, and the left half of O += P V, with P from its registers
//   helper    the right half of O += P V, with P from shared memory
//   loaders   gather rows of the cache by cp.async into two stages, and never wait for them: the copies themselves
//             arrive at the stage's barriers, one for each third of the width, so that scores can start with the first
// A tile serves as K (64 tokens x 576, read along the width) and as V (its first 512 columns, read along the tokens),
// both from the same swizzled shared memory. A tile's scores are issued behind the P V of the tile before, and softmax
// overlaps with what the helper still has to do.
// The host prepends the wrappers of the three wgmma shapes, whose operand lists nobody should have to read.

constexpr int PANEL_BYTES = 64 * 128;                // 64 rows of 64 bf16, 128-byte swizzle
constexpr int TILE_BYTES = PANELS * PANEL_BYTES;
constexpr int P_AT = (1 + STAGES) * TILE_BYTES;      // shared memory: Q, stages, P, small arrays, barriers
constexpr int FADE_AT = P_AT + PANEL_BYTES;
constexpr int INVERSE_AT = FADE_AT + ROWS * 4;
constexpr int BARRIERS_AT = INVERSE_AT + ROWS * 4;   // full and empty of the stages, full and empty of P
constexpr int CONSUMERS = 256, LOADER_WARPS = 4, THIRD = PANELS / 3;
constexpr int WARP_ROWS = TOKENS / LOADER_WARPS;
constexpr float SLACK = 8.0f;

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
__device__ __forceinline__ void copies_arrive(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
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
// Registers that wgmma still reads must not be given to anything else before the wait.
template <int N> __device__ __forceinline__ void hold(u32 (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+r"(x[i])::"memory");
}
// Shared-memory matrix descriptors, 128-byte swizzle. Along the width (K-major): groups of 8 rows are 1024 bytes apart.
// Along the tokens (MN-major): panels of 64 columns are `leading` bytes apart, groups of 8 tokens 1024 bytes.
__device__ __forceinline__ u64 descriptor(u32 address, int leading) {
    return u64((address & 0x3FFFF) >> 4) | u64(leading >> 4) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}

__device__ __forceinline__ u32 swizzled(u32 panel, int row, int chunk) {
    return panel + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// A loader warp has WARP_ROWS rows of each tile, one row's address a lane (null: no such row).
__device__ __forceinline__ const char *row_address(const Arguments &a, const Request &q, int tile, int first,
                                                   int lane) {
    const int token = tile * TOKENS + first + lane % WARP_ROWS;
    if (token < q.length)
        return a.cache + load_index(a.cache_indices, q.first_index + token, a.wide_cache_indices) * a.cache_stride;
    if (token < q.length + q.nodes) return a.draft_keys + (q.first_node + token - q.length) * a.draft_stride;
    return nullptr;
}

// Gather this warp's rows, a third of the width after the other. Lanes of 8 read 128 contiguous bytes of a row.
__device__ __forceinline__ void load_rows(const Arguments &a, const char *address, u32 stage, u32 full, int first,
                                          int lane) {
    const char *from[WARP_ROWS / 4];
    u32 missing = 0;
#pragma unroll
    for (int i = 0; i < WARP_ROWS / 4; ++i) {
        const u64 held = __shfl_sync(~0u, reinterpret_cast<u64>(address), i * 4 + lane / 8);
        from[i] = (held ? reinterpret_cast<const char *>(held) : a.cache) + (lane & 7) * 16;
        missing |= u32(held == 0) << i;
    }
#pragma unroll
    for (int third = 0; third < 3; ++third) {
#pragma unroll
        for (int i = 0; i < WARP_ROWS / 4; ++i) {
            const u32 to = swizzled(stage, first + i * 4 + lane / 8, lane & 7);
#pragma unroll
            for (int panel = third * THIRD; panel < (third + 1) * THIRD; ++panel)
                copy_16(to + panel * PANEL_BYTES, from[i] + panel * 128, missing >> i & 1 ? 0 : 16);
        }
        copies_arrive(full + third * 8);
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

// Copies by cp.async are ordinary writes, which the matrix units see behind a fence only.
__device__ __forceinline__ void wait_third(u32 full, int third, int phase) {
    barrier_wait(full + third * 8, phase);
    proxy_fence();
}

__device__ __forceinline__ void issue_scores(float (&s)[32], u32 query, u32 stage, u32 full, int phase) {
#pragma unroll
    for (int panel = 0; panel < PANELS; ++panel) {
        if (panel % THIRD == 0) {
            wait_third(full, panel / THIRD, phase);
            wgmma_fence();
        }
#pragma unroll
        for (int inside = 0; inside < 128; inside += 32) {
            const int at = panel * PANEL_BYTES + inside;
            wgmma_scores(s, descriptor(query + at, 16), descriptor(stage + at, 16), at > 0);
        }
    }
    wgmma_commit();
}

// Which draft nodes a row's node sees: the root apart, then a bit a node. The four lanes of a row share the reading.
struct Seen { u32 root; u64 others; };

__device__ __forceinline__ Seen load_seen(const Arguments &a, const Request &q, i64 mask_start, int row, int lane) {
    const int node = row / a.heads;
    Seen seen = {0, 0};
    if (node < q.nodes) {
        if (a.mask == CAUSAL) {
            seen = {1, (u64(1) << node) - 1};        // node 64 sees 64 others: the shift below must not be by 64
            if (node == 64) seen.others = ~u64(0);
        } else if (a.mask == ANCESTORS) {
            seen = {1, u64(a.ancestors[q.first_node + node])};
        } else {
            const unsigned char *cells = a.full_mask + mask_start + i64(node) * (q.length + q.nodes) + q.length;
            seen.root = cells[0] != 0;
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int other = i * 4 + lane % 4;  // bit `other` is node other + 1
                if (other + 1 < q.nodes && cells[other + 1]) seen.others |= u64(1) << other;
            }
        }
        if (q.nodes <= 64) seen.others &= (u64(1) << (q.nodes - 1)) - 1;
    }
    seen.others |= __shfl_xor_sync(~0u, seen.others, 1);
    seen.others |= __shfl_xor_sync(~0u, seen.others, 2);
    return seen;
}

// Hide, in a tile that reaches beyond the committed tokens, what the rows' nodes do not see.
__device__ __forceinline__ void hide(float (&s)[32], const Seen &upper, const Seen &lower, int first_other, int lane) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int other = first_other + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const Seen &seen = i & 2 ? lower : upper;
        const bool draft = other <= 64 && (seen.others >> ((other - 1) & 63) & 1);
        if (!(other < 0 || (other == 0 ? seen.root : draft))) s[i] = -INFINITY;
    }
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

// Four lanes, four words each: word w of lane l and word l of lane w change places.
__device__ __forceinline__ void transpose(u32 (&w)[4], int lane) {
    const bool odd = lane & 1, high = lane & 2;
    u32 x = __shfl_xor_sync(~0u, odd ? w[0] : w[1], 1), y = __shfl_xor_sync(~0u, odd ? w[2] : w[3], 1);
    if (odd) w[0] = x, w[2] = y; else w[1] = x, w[3] = y;
    x = __shfl_xor_sync(~0u, high ? w[0] : w[2], 2), y = __shfl_xor_sync(~0u, high ? w[1] : w[3], 2);
    if (high) w[0] = x, w[1] = y; else w[2] = x, w[3] = y;
}

// Write one half of the columns of this thread's two rows, in bf16, 16 bytes a lane; `rows` of them exist from here on.
__device__ __forceinline__ void store_half(const float (&o)[128], char *to, int rows, int half, int lane,
                                           float inverse0, float inverse1) {
    to += half * LATENT + lane % 4 * 16;
#pragma unroll
    for (int below = 0; below < 2; ++below) {
        const float inverse = below ? inverse1 : inverse0;
#pragma unroll
        for (int j = 0; j < 32; j += 4) {
            u32 words[4];
#pragma unroll
            for (int k = 0; k < 4; ++k)
                words[k] = pack_bf16(o[(j + k) * 4 + below * 2] * inverse, o[(j + k) * 4 + below * 2 + 1] * inverse);
            transpose(words, lane);
            if (rows > below * 8)
                *reinterpret_cast<uint4 *>(to + below * 8 * LATENT * 2 + j * 16) =
                    make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

// Online softmax, in base 2, of this thread's two rows. The anchor follows the maximum only where that has run ahead by
// SLACK powers of two: float32 sums bear it, and what was added up so far need seldom be faded.
struct Softmax { float anchor0, anchor1, sum0, sum1, fade0, fade1; };

__device__ __forceinline__ void raise(float &anchor, float &fade, float most) {
    most = quad_max(most);
    const float old = anchor;
    if (most > old + SLACK) anchor = most;
    fade = old == anchor ? 1.0f : exp2_fast(old - anchor);
}

__device__ __forceinline__ void soften(const Arguments &a, float (&s)[32], Softmax &m, u32 (&p)[16]) {
    if (a.cap > 0.0f) {
#pragma unroll
        for (int i = 0; i < 32; ++i)                 // tanh(x) = 1 - 2 / (exp(2x) + 1), right at both ends
            s[i] = a.cap - 2.0f * a.cap * reciprocal(exp2_fast(s[i] * a.cap_inner) + 1.0f);
    }
    const float scale = a.cap > 0.0f ? 1.0f : a.scale;
    float most0 = s[0], most1 = s[2];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        if (i & 2) most1 = fmaxf(most1, s[i]); else most0 = fmaxf(most0, s[i]);
    }
    most0 *= scale, most1 *= scale;
    m.fade0 = m.fade1 = 1.0f;
    if (__any_sync(~0u, most0 > m.anchor0 + SLACK || most1 > m.anchor1 + SLACK)) {
        raise(m.anchor0, m.fade0, most0);
        raise(m.anchor1, m.fade1, most1);
        m.sum0 *= m.fade0, m.sum1 *= m.fade1;
    }
    const float anchor0 = m.anchor0 == -INFINITY ? 0.0f : m.anchor0;
    const float anchor1 = m.anchor1 == -INFINITY ? 0.0f : m.anchor1;
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        const float anchor = i & 2 ? anchor1 : anchor0;
        s[i] = exp2_fast(fmaf(s[i], scale, -anchor)), s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -anchor));
        p[i / 2] = pack_bf16(s[i], s[i + 1]);
    }
}

// The weights' sums, while the matrix units are at work.
__device__ __forceinline__ void add_up(const float (&s)[32], Softmax &m) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        if (i & 2) m.sum1 += s[i] + s[i + 1]; else m.sum0 += s[i] + s[i + 1];
    }
}

// Hand a tile's weights to the helper, in bf16, with what the rows so far fade by.
__device__ __forceinline__ void publish(const u32 (&p)[16], const Softmax &m, u32 panel, u32 p_full, u32 p_empty,
                                        float *fades, int in_block, int number, int lane) {
    barrier_wait(p_empty, (number & 1) ^ 1);
    u32 row = swizzled(panel, in_block, 0) + lane % 4 * 4;
    asm volatile("" : "+r"(row));                    // or the compiler keeps all addresses over the loop, and spills
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const u32 at = (row ^ (i / 2 << 4)) + i % 2 * 1024;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(p[i]) : "memory");
    }
    if (lane % 4 == 0) fades[in_block] = m.fade0, fades[in_block + 8] = m.fade1;
    proxy_fence();
    warp_arrive(p_full, lane);
}

__device__ __forceinline__ void issue_values(float (&o)[128], const u32 (&p)[16], u32 stage) {
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < TOKENS / 16; ++step)
        wgmma_values_registers(o, p[step * 4], p[step * 4 + 1], p[step * 4 + 2], p[step * 4 + 3],
                               descriptor(stage + step * 2048, PANEL_BYTES));
    wgmma_commit();
}

extern "C" __global__ void __launch_bounds__(CONSUMERS + LOADER_WARPS * 32, 1)
    attend(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(1024) char memory[];
    const u32 query = shared_address(memory), stages = query + TILE_BYTES, p_panel = query + P_AT;
    const u32 full = query + BARRIERS_AT, empty = full + STAGES * 24, p_full = empty + STAGES * 8, p_empty = p_full + 8;
    float *fades = reinterpret_cast<float *>(memory + FADE_AT);
    float *inverses = reinterpret_cast<float *>(memory + INVERSE_AT);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = warp / 4;
    const int block = blockIdx.x, team = blockIdx.y;

    if (thread == 0) {
        for (int i = 0; i < STAGES; ++i) {
            for (int third = 0; third < 3; ++third) barrier_init(full + (i * 3 + third) * 8, LOADER_WARPS * 32);
            barrier_init(empty + i * 8, CONSUMERS / 32);
        }
        barrier_init(p_full, 4);
        barrier_init(p_empty, 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    const Place place = locate(a, team, lane);
    const int low = place.low, high = place.high;
    int request = place.request, start = place.start;
    __syncthreads();

    int count = 0;                                   // tiles walked so far: stage and phase of every barrier
    if (group >= 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        const int first = warp % LOADER_WARPS * WARP_ROWS;
        for (; start < high; ++request) {
            const Request q = load_request(a, request);
            start += q.tiles ? EXTRA : 0;
            const int begin = max(low - start, 0), stop = min(high - start, q.tiles);
            start += q.tiles;
            if (block * ROWS >= q.nodes * a.heads || begin >= stop) continue;
            const char *next = row_address(a, q, begin, first, lane);
            for (int tile = begin; tile < stop; ++tile, ++count) {
                const int stage = count % STAGES;
                const char *address = next;
                next = tile + 1 < stop ? row_address(a, q, tile + 1, first, lane) : nullptr;
                barrier_wait(empty + stage * 8, (count / STAGES & 1) ^ 1);
                load_rows(a, address, stages + stage * TILE_BYTES, full + stage * 24, first, lane);
            }
        }
        copies_wait();
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int in_block = warp % 4 * 16 + lane / 4;   // this thread's rows: in_block and in_block + 8
    const int row = block * ROWS + in_block;
    for (; start < high; ++request) {
        const Request q = load_request(a, request);
        start += q.tiles ? EXTRA : 0;
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
        const bool whole = stop - begin == q.tiles;  // then this is the output, elsewhere a part of it
        char *to = whole ? a.out + (q.first_node * a.heads + row) * (LATENT * 2)
                         : a.partial + (slot * ROWS + in_block) * (LATENT * 2);

        if (group == 0) {
            Seen upper = {0, 0}, lower = {0, 0};
            if (stop * TOKENS > q.length) {
                const i64 mask_start = a.mask == FULL ? load_index(a.mask_indptr, request, a.wide_mask_indptr) : 0;
                upper = load_seen(a, q, mask_start, row, lane);
                lower = load_seen(a, q, mask_start, row + 8, lane);
            }
            Softmax m = {-INFINITY, -INFINITY, 0.0f, 0.0f, 1.0f, 1.0f};
            float s[32];
            u32 p[16] = {};
            for (int tile = begin; tile < stop; ++tile, ++count) {
                const int stage = count % STAGES;
                issue_scores(s, query, stages + stage * TILE_BYTES, full + stage * 24, count / STAGES & 1);
                if (tile > begin) {                  // the values of the tile before were issued first
                    wgmma_wait<1>();
                    warp_arrive(empty + (stage ^ 1) * 8, lane);
                }
                wgmma_wait<0>();
                hold(s);
                hold(o);
                hold(p);
                if ((tile + 1) * TOKENS > q.length) hide(s, upper, lower, tile * TOKENS - q.length, lane);
                soften(a, s, m, p);
                publish(p, m, p_panel, p_full, p_empty, fades, in_block, count, lane);
                fade_rows(o, m.fade0, m.fade1);
                issue_values(o, p, stages + stage * TILE_BYTES);
                add_up(s, m);
            }
            wgmma_wait<0>();
            hold(o);
            hold(p);
            warp_arrive(empty + (count - 1) % STAGES * 8, lane);
            const float sum0 = quad_sum(m.sum0), sum1 = quad_sum(m.sum1);
            if (lane % 4 == 0) {
                inverses[in_block] = sum0 > 0.0f ? reciprocal(sum0) : 0.0f;
                inverses[in_block + 8] = sum1 > 0.0f ? reciprocal(sum1) : 0.0f;
                float *lse = a.partial_lse + slot * ROWS + in_block;
                if (!whole && row < rows) lse[0] = sum0 > 0.0f ? m.anchor0 + log2f(sum0) : -INFINITY;
                if (!whole && row + 8 < rows) lse[8] = sum1 > 0.0f ? m.anchor1 + log2f(sum1) : -INFINITY;
            }
        } else {
            for (int tile = begin; tile < stop; ++tile, ++count) {
                const int stage = count % STAGES;
                wait_third(full + stage * 24, 1, count / STAGES & 1);    // its columns begin in the second third
                wait_third(full + stage * 24, 2, count / STAGES & 1);
                barrier_wait(p_full, count & 1);
                fade_rows(o, fades[in_block], fades[in_block + 8]);
                wgmma_fence();
#pragma unroll
                for (int step = 0; step < TOKENS / 16; ++step) {
                    const u32 right = stages + stage * TILE_BYTES + 4 * PANEL_BYTES + step * 2048;
                    wgmma_values_shared(o, descriptor(p_panel + step * 32, 16), descriptor(right, PANEL_BYTES));
                }
                wgmma_commit();
                wgmma_wait<0>();
                hold(o);
                warp_arrive(empty + stage * 8, lane);
                warp_arrive(p_empty, lane);
            }
        }
        consumers_sync();
        asm volatile("griddepcontrol.launch_dependents;");
        store_half(o, to, rows - row, group, lane, inverses[in_block], inverses[in_block + 8]);
    }
}
