#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// hash[0] += Σ_i mix(x_i, i) modulo 2^64, where mix is a bijection of x_i for each i. A change of
/// one element therefore always changes the hash, and a change of several elements leaves it
/// unchanged with a probability of about 2^-64. The sum does not depend on the order of its terms.
/// hash [1]. Asynchronous on exec; instantiated for unsigned integers of 2, 4 and 8 bytes.
template <class Word>
void add_hash(const Exec& exec, View1<std::uint64_t> hash, View1<const Word> x);

/// add_hash of the bits of `elements` elements of `size` bytes at `data`. size: 2, 4 or 8;
/// otherwise error.
void add_hash_of_bits(const Exec& exec, View1<std::uint64_t> hash, const void* data,
                      std::int64_t elements, int size);

}  // namespace trireme::kernels
