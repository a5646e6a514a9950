// MKL takes its fast kernels on CPUs of Intel only: it asks this function, which a preloaded library answers for all
// CPUs that have the instructions (the kernels are chosen by AVX2 and AVX-512 after that). Numbers differ by rounding
// alone.
extern "C" int mkl_serv_intel_cpu_true() { return 1; }
