// Vector addition: one thread adds one element.
//
//     nvcc -arch=native -o vector_add vector_add.cu && ./vector_add 100000000 256        N, threads in a block

extern "C" __global__ void vector_add(const float* A, const float* B, float* C, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {                                     // the last block has threads to spare
        C[i] = A[i] + B[i];
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
    int N = argc > 1 ? atoi(argv[1]) : 100000000;
    int block = argc > 2 ? atoi(argv[2]) : 256;
    int grid = (N + block - 1) / block;              // ceil(N / block) in integers: a floor would drop the last elements
    size_t bytes = N * sizeof(float);

    float *h_A = (float*)malloc(bytes), *h_B = (float*)malloc(bytes), *h_C = (float*)malloc(bytes);
    for (int i = 0; i < N; i++) {
        h_A[i] = rand() % 100;
        h_B[i] = rand() % 100;
    }
    float *A, *B, *C;                                // on the GPU
    CUDA_CHECK(cudaMalloc(&A, bytes));
    CUDA_CHECK(cudaMalloc(&B, bytes));
    CUDA_CHECK(cudaMalloc(&C, bytes));
    CUDA_CHECK(cudaMemcpy(A, h_A, bytes, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(B, h_B, bytes, cudaMemcpyHostToDevice));

    cudaEvent_t start, stop;
    CUDA_CHECK(cudaEventCreate(&start));
    CUDA_CHECK(cudaEventCreate(&stop));
    vector_add<<<grid, block>>>(A, B, C, N);         // the first launch also loads the code: not timed
    CUDA_CHECK(cudaGetLastError());                  // a launch returns nothing: its errors wait here
    CUDA_CHECK(cudaEventRecord(start));
    vector_add<<<grid, block>>>(A, B, C, N);
    CUDA_CHECK(cudaEventRecord(stop));
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaEventSynchronize(stop));          // the CPU has run ahead: wait until the GPU is past `stop`
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));

    CUDA_CHECK(cudaMemcpy(h_C, C, bytes, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += h_C[i] != h_A[i] + h_B[i];
    printf("vector_add: N %d, grid %d, block %d, %.4f ms, %.0f GB/s, %d wrong\n",
           N, grid, block, ms, 3.0 * bytes / ms / 1e6, wrong);

    CUDA_CHECK(cudaEventDestroy(start));
    CUDA_CHECK(cudaEventDestroy(stop));
    CUDA_CHECK(cudaFree(A));
    CUDA_CHECK(cudaFree(B));
    CUDA_CHECK(cudaFree(C));
    free(h_A);
    free(h_B);
    free(h_C);
    return wrong != 0;
}
#endif
