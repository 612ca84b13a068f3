#pragma once

#include <trireme/io/hdf5.hpp>

#include <hdf5.h>

#include <string>

namespace trireme::io {

static_assert(std::is_same_v<hid_t, std::int64_t>, "HDF5 1.10 or newer");

/// HDF5's type for a DType, the same in memory and in the file: bf16 and fp16 are custom float
/// types. The caller holds the Lock.
Handle hdf5_type(DType dtype);

/// The DType of a dataset or attribute type; Error naming `object` for any other.
DType dtype_of_hdf5(hid_t type, const std::string& object);

/// The innermost entry of HDF5's error stack, ": …" or "". The caller holds the Lock.
std::string hdf5_reason();

}  // namespace trireme::io
