// Control divergence: half of the threads take one loop, half the other. What it costs depends on who their neighbours are.
//
//     nvcc -arch=native -o divergence divergence.cu && ./divergence 4194304 2000        N, rounds of each loop

extern "C" __global__ void two_paths(float* X, int N, int period, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        float x = X[i];
        if (i / period % 2 == 0) {                   // neighbours agree in groups of `period`
            for (int k = 0; k < rounds; k++) {
                x = x * 0.5f + 1.0f;
            }
        } else {
            for (int k = 0; k < rounds; k++) {
                x = x * 0.25f - 1.0f;
            }
        }
        X[i] = x;
    }
}

#ifndef __CUDACC_RTC__                               // what follows runs on the CPU; run-time compilation needs the kernel alone
#include <cstdio>
#include <cstdlib>

#define CUDA_CHECK(call)                                                                                 \
    do {                                                                                                 \
        cudaError_t status = (call);                                                                     \
        if (status != cudaSuccess) {                                                                     \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status));   \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

int main(int argc, char** argv) {
    int N = argc > 1 ? atoi(argv[1]) : 4194304;
    int rounds = argc > 2 ? atoi(argv[2]) : 2000;
    int block = 256, grid = (N + block - 1) / block;
    float* X;
    CUDA_CHECK(cudaMalloc(&X, N * sizeof(float)));
    CUDA_CHECK(cudaMemset(X, 0, N * sizeof(float)));

    cudaEvent_t start, stop;
    CUDA_CHECK(cudaEventCreate(&start));
    CUDA_CHECK(cudaEventCreate(&stop));
    for (int period = 1; period <= 128; period *= 2) {
        two_paths<<<grid, block>>>(X, N, period, rounds);    // the first launch also loads the code: not timed
        CUDA_CHECK(cudaGetLastError());
        CUDA_CHECK(cudaEventRecord(start));
        two_paths<<<grid, block>>>(X, N, period, rounds);
        CUDA_CHECK(cudaEventRecord(stop));
        CUDA_CHECK(cudaGetLastError());
        CUDA_CHECK(cudaEventSynchronize(stop));
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
        printf("two_paths: period %d, %.4f ms\n", period, ms);
    }
    CUDA_CHECK(cudaEventDestroy(start));
    CUDA_CHECK(cudaEventDestroy(stop));
    CUDA_CHECK(cudaFree(X));
    return 0;
}
#endif
