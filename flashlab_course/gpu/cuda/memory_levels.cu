// How fast, and how far away, each level of a GPU's memory is.

// Bandwidth: the whole grid reads n groups of four floats, `rounds` times. What n fits into decides which level answers;
// __ldcg passes by the SM's own L1 cache, so a small X comes from L2. One load a thread, 2048 threads an SM: enough in flight.
extern "C" __global__ void stream_read(const float4* X, int n, int rounds, float* sink) {
    float sum = 0.0f;
    int threads = gridDim.x * blockDim.x;
    for (int round = 0; round < rounds; round++) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
            float4 x = __ldcg(X + i);
            sum += x.x + x.y + x.z + x.w;
        }
    }
    if (sum == -1.0f) sink[0] = sum;                 // X holds numbers >= 0: never true, but the compiler cannot know
}

// Bandwidth of shared memory: each block reads its own 32 KiB, `rounds` times, 16 bytes a thread and load.
extern "C" __global__ void shared_read(const float4* X, int rounds, float* sink) {
    __shared__ float4 tile[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = X[i];
    __syncthreads();
    unsigned start = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);    // four sums: no addition waits for the one before it
    for (int round = 0; round < rounds; round++) {
        #pragma unroll
        for (int i = 0; i < 4; i++) {                // 512 threads, 4 loads each: the whole tile
            float4 x;                                // volatile: read it again each round
            asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(start + i * 512 * 16));
            sum.x += x.x; sum.y += x.y; sum.z += x.z; sum.w += x.w;
        }
    }
    if (sum.x + sum.y + sum.z + sum.w == -1.0f) sink[0] = sum.x;
}

// Latency: one thread, and each address is known only once the number before it has arrived.
extern "C" __global__ void pointer_chase(const int* next, int start, int steps, int* sink) {
    int p = start;
    for (int k = 0; k < steps; k++) p = next[p];
    sink[0] = p;
}

// The same chase within 16 KiB of shared memory.
extern "C" __global__ void shared_chase(const int* next, int n, int steps, int* sink) {
    __shared__ int tile[4096];
    for (int i = 0; i < n; i++) tile[i] = next[i];
    int p = 0;
    for (int k = 0; k < steps; k++) p = tile[p];
    sink[0] = p;
}

// Bytes in flight: each thread has exactly one load on the way, of 4 bytes or of 16. The sum needs the number at once, and no turn
// of the loop is unrolled, so the next load starts only when this one has come.
extern "C" __global__ void one_load_4(const float* X, int n, float* sink) {
    float sum = 0.0f;
    #pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += __ldcg(X + i);
    if (sum == -1.0f) sink[0] = sum;
}

extern "C" __global__ void one_load_16(const float4* X, int n, float* sink) {
    float sum = 0.0f;
    #pragma unroll 1
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 x = __ldcg(X + i);
        sum += x.x + x.y + x.z + x.w;
    }
    if (sum == -1.0f) sink[0] = sum;
}
