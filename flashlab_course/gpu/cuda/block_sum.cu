// The sum of each block's numbers: its threads meet in shared memory. A block is a power of two of threads, at most 1024.

extern "C" __global__ void block_sum(const float* X, float* Sums) {
    __shared__ float shared[1024];
    int t = threadIdx.x;
    shared[t] = X[blockIdx.x * blockDim.x + t];
    __syncthreads();                                 // all numbers of the block are there
    int half = blockDim.x / 2;
    while (half > 0) {
        if (t < half) {
            shared[t] = shared[t] + shared[t + half];
        }
        __syncthreads();                             // all sums of this round are there
        half = half / 2;
    }
    if (t == 0) {
        Sums[blockIdx.x] = shared[0];
    }
}
