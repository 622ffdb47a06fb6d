// The second Hopper kernel: the sum of the parts.

// Eight bf16 numbers, times a weight.
__device__ __forceinline__ void add_weighted(float (&sum)[8], const uint4 &x, float weight) {
    const u32 words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum[i * 2] += weight * __uint_as_float(words[i] << 16);
        sum[i * 2 + 1] += weight * __uint_as_float(words[i] & 0xFFFF0000u);
    }
}

// Sum of the rows' parts, in a fixed order. A block takes 128 columns of one request's rows: 16 threads across,
// `groups` groups of parts, and as many rows as that leaves of 256 threads. Four blocks fit a multiprocessor, so that a
// single request of 128 rows is one wave.
extern "C" __global__ void __launch_bounds__(256, 4) merge(const __grid_constant__ Arguments a) {
    constexpr int MOST = 16 * 160, AHEAD = 6;        // 16 rows of as many parts as there are teams
    __shared__ float weights[MOST];
    __shared__ float sums[16][128];
    const int thread = threadIdx.x, lane = thread % 32, across = thread % 16, groups = a.groups, each = 16 / groups;
    const int group = thread / 16 % groups, mine = thread / 16 / groups, request = blockIdx.y;
    const int row = blockIdx.x * each + mine, column = blockIdx.z * 128 + across * 8;
    const Request q = load_request(a, request);
    const int share = locate(a, 0, lane).share, rows = q.nodes * a.heads;
    int before = EXTRA;
    for (int base = 0; base < request; base += 32)
        before += __reduce_add_sync(~0u, base + lane < request ? tiles_at(a, base + lane) : 0);
    const int first = before / share, parts = q.tiles ? (before + q.tiles - 1) / share - first + 1 : 0;
    const i64 step = i64(a.blocks) * ROWS, first_row = (first + request) * step + row;
    // Also where there is nothing to do: a grid that ends without waiting lets what follows overtake `attend`.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (parts <= 1 || int(blockIdx.x) * each >= rows) return;
    const bool valid = row < rows;
    const char *from = a.partial + (first_row * LATENT + column) * 2;
    uint4 ahead[AHEAD];                              // in flight while the weights are worked out
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        const int part = group + i * groups;
        ahead[i] = make_uint4(0, 0, 0, 0);
        if (valid && part < parts) ahead[i] = *reinterpret_cast<const uint4 *>(from + part * step * (LATENT * 2));
    }
    const int warp = thread / 32, room = MOST / each;
    for (int r = warp; r < each; r += 8) {           // a warp works out a row's weights
        const int this_row = blockIdx.x * each + r;
        if (this_row >= rows) break;
        const float *lse = a.partial_lse + (first + request) * step + this_row;
        float top = -INFINITY, sum = 0.0f;
        for (int i = lane; i < parts; i += 32) top = fmaxf(top, weights[r * room + i] = lse[i * step]);
        for (int mask = 16; mask; mask /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, mask));
        const float anchor = top == -INFINITY ? 0.0f : top;
        for (int i = lane; i < parts; i += 32) sum += weights[r * room + i] = exp2f(weights[r * room + i] - anchor);
        for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
        const float inverse = sum > 0.0f ? reciprocal(sum) : 0.0f;
        for (int i = lane; i < parts; i += 32) weights[r * room + i] *= inverse;
    }
    __syncthreads();
    float sum[8] = {};
    if (valid) {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i)
            if (group + i * groups < parts) add_weighted(sum, ahead[i], weights[mine * room + group + i * groups]);
#pragma unroll 4
        for (int part = group + AHEAD * groups; part < parts; part += groups)
            add_weighted(sum, *reinterpret_cast<const uint4 *>(from + part * step * (LATENT * 2)),
                         weights[mine * room + part]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[thread / 16][across * 8 + i] = sum[i];
    __syncthreads();
    const int half = thread % 64 * 2;                // 64 threads a row, two columns each
    for (int r = thread / 64; r < each; r += 4) {
        const int this_row = blockIdx.x * each + r;
        if (this_row >= rows) break;
        float x = 0.0f, y = 0.0f;
        for (int i = r * groups; i < (r + 1) * groups; ++i) x += sums[i][half], y += sums[i][half + 1];
        const i64 out_row = q.first_node * a.heads + this_row;
        *reinterpret_cast<u32 *>(a.out + (out_row * LATENT + blockIdx.z * 128 + half) * 2) = pack_bf16(x, y);
    }
}
