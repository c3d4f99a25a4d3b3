// This is what one core does at most, measured when it is asked for first: what figures of kernels are quoted beside.
#pragma once

namespace tenon::test {

double read_peak();   // bytes a second, of memory
double f32_peak();    // operations a second: fused multiply-adds, two each, of the widest vectors that the machine has
double cycle_rate();  // cycles a second, by products that wait for each other
double int8_peak();   // operations a second: integer dot products, two a product; 0 without AVX-512 VNNI

}  // namespace tenon::test
