#include <trireme/base/check.hpp>

#include "hdf5_types.hpp"

#include <bit>

namespace trireme::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "types in files are little endian and are never converted");

/// A binary float of `exponent` and `mantissa` bits below one sign bit, 16 in all.
Handle small_float(std::size_t exponent, std::size_t mantissa) {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  const bool made = H5Tset_fields(type.id(), 15, mantissa, exponent, 0, mantissa) >= 0 &&
                    H5Tset_size(type.id(), 2) >= 0 &&
                    H5Tset_ebias(type.id(), (std::size_t{1} << (exponent - 1)) - 1) >= 0;
  check(made, "HDF5 refuses a 16-bit float type", hdf5_reason());
  return type;
}

hid_t standard_type(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return H5T_IEEE_F64LE;
    case DType::fp32:
      return H5T_IEEE_F32LE;
    case DType::int64:
      return H5T_STD_I64LE;
    case DType::int32:
      return H5T_STD_I32LE;
    case DType::uint32:
      return H5T_STD_U32LE;
    case DType::uint16:
      return H5T_STD_U16LE;
    case DType::uint8:
      return H5T_STD_U8LE;
    case DType::bf16:
    case DType::fp16:
      break;
  }
  return H5I_INVALID_HID;
}

herr_t keep_innermost(unsigned, const H5E_error2_t* entry, void* out) {
  auto& reason = *static_cast<std::string*>(out);
  if (reason.empty() && entry->desc != nullptr) reason = text(": ", entry->desc);
  return 0;
}

}  // namespace

Handle hdf5_type(DType dtype) {
  if (dtype == DType::bf16) return small_float(8, 7);
  if (dtype == DType::fp16) return small_float(5, 10);
  return {H5Tcopy(standard_type(dtype)), H5Tclose};
}

DType dtype_of_hdf5(hid_t type, const std::string& object) {
  for (std::size_t i = 0; i < names<DType>().size(); ++i) {
    const auto candidate = static_cast<DType>(i);
    const Handle known = hdf5_type(candidate);
    if (H5Tequal(type, known.id()) > 0) return candidate;
  }
  check(false, object, ": has a number type that Trireme does not know");
  return DType::fp64;
}

std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
  return reason;
}

}  // namespace trireme::io
