// Matrix addition on a two-dimensional grid, twice: the threads of a warp walk along a row, or down a column.
//
//     nvcc -arch=native -o matrix_add matrix_add.cu && ./matrix_add 10000 8000        rows, columns

extern "C" __global__ void matrix_add(const float* A, const float* B, float* C, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x; // x, the lanes' own direction, walks along a row
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) {
        C[row * cols + col] = A[row * cols + col] + B[row * cols + col];
    }
}

extern "C" __global__ void matrix_add_down_columns(const float* A, const float* B, float* C, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x; // x walks down a column: the right answer, from scattered addresses
    int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && col < cols) {
        C[row * cols + col] = A[row * cols + col] + B[row * cols + col];
    }
}

#ifndef __CUDACC_RTC__                               // what follows runs on the CPU; run-time compilation needs the kernels alone
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

typedef void (*Kernel)(const float*, const float*, float*, int, int);

float milliseconds(Kernel kernel, dim3 grid, dim3 block, float* A, float* B, float* C, int rows, int cols) {
    cudaEvent_t start, stop;
    CUDA_CHECK(cudaEventCreate(&start));
    CUDA_CHECK(cudaEventCreate(&stop));
    kernel<<<grid, block>>>(A, B, C, rows, cols);    // the first launch also loads the code: not timed
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaEventRecord(start));
    kernel<<<grid, block>>>(A, B, C, rows, cols);
    CUDA_CHECK(cudaEventRecord(stop));
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
    CUDA_CHECK(cudaEventDestroy(start));
    CUDA_CHECK(cudaEventDestroy(stop));
    return ms;
}

int main(int argc, char** argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 10000;
    int cols = argc > 2 ? atoi(argv[2]) : 8000;
    dim3 block(32, 8);                               // 256 threads; x is 32, so that a warp is one row of the block
    dim3 along((cols + 31) / 32, (rows + 7) / 8);    // x counts columns, y rows: as in the kernel
    dim3 down((rows + 31) / 32, (cols + 7) / 8);     // x counts rows, y columns
    size_t bytes = (size_t)rows * cols * sizeof(float);

    float *h_A = (float*)malloc(bytes), *h_B = (float*)malloc(bytes), *h_C = (float*)malloc(bytes);
    for (int i = 0; i < rows * cols; i++) {
        h_A[i] = rand() % 100;
        h_B[i] = rand() % 100;
    }
    float *A, *B, *C;                                // on the GPU
    CUDA_CHECK(cudaMalloc(&A, bytes));
    CUDA_CHECK(cudaMalloc(&B, bytes));
    CUDA_CHECK(cudaMalloc(&C, bytes));
    CUDA_CHECK(cudaMemcpy(A, h_A, bytes, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(B, h_B, bytes, cudaMemcpyHostToDevice));

    int all_wrong = 0;
    for (int down_columns = 0; down_columns <= 1; down_columns++) {
        CUDA_CHECK(cudaMemset(C, 0xff, bytes));      // NaN everywhere: an element nobody writes will show
        float ms = milliseconds(down_columns ? matrix_add_down_columns : matrix_add, down_columns ? down : along, block,
                                A, B, C, rows, cols);
        CUDA_CHECK(cudaMemcpy(h_C, C, bytes, cudaMemcpyDeviceToHost));
        int wrong = 0;
        for (int i = 0; i < rows * cols; i++) wrong += h_C[i] != h_A[i] + h_B[i];
        printf("%s: %d x %d, %.4f ms, %.0f GB/s, %d wrong\n", down_columns ? "matrix_add_down_columns" : "matrix_add",
               rows, cols, ms, 3.0 * bytes / ms / 1e6, wrong);
        all_wrong += wrong;
    }

    CUDA_CHECK(cudaFree(A));
    CUDA_CHECK(cudaFree(B));
    CUDA_CHECK(cudaFree(C));
    free(h_A);
    free(h_B);
    free(h_C);
    return all_wrong != 0;
}
#endif
