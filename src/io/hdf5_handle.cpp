// HDF5 identifiers, types and errors, and the lock around all calls of the library.
#include <trireme/io/hdf5_handle.hpp>

#include <trireme/base/check.hpp>

#include <hdf5.h>

#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme::io {
namespace {

static_assert(std::is_same_v<hid_t, std::int64_t>, "HDF5 1.10 or newer");
static_assert(std::endian::native == std::endian::little,
              "types in files are little endian and are never converted");

/// A 16-bit floating-point type: one sign bit, `exponent` exponent bits, `mantissa` mantissa bits.
Handle small_float(std::size_t exponent, std::size_t mantissa) {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  const bool made = H5Tset_fields(type.id(), 15, mantissa, exponent, 0, mantissa) >= 0 &&
                    H5Tset_size(type.id(), 2) >= 0 &&
                    H5Tset_ebias(type.id(), (std::size_t{1} << (exponent - 1)) - 1) >= 0;
  check(made, "HDF5 cannot create a 16-bit float type", hdf5_reason());
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

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

Lock::Lock() : guard_(hdf5_mutex()) {
  [[maybe_unused]] static const bool silenced = [] {
    H5dont_atexit();  // handles close their objects; HDF5's clean-up loops after failed writes
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    return true;
  }();
}

Handle::Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

bool Handle::reset() {
  if (id_ < 0) return true;
  const Lock lock;
  return close_(std::exchange(id_, -1)) >= 0;
}

Handle hdf5_type(DType dtype) {
  const Lock lock;
  if (dtype == DType::bf16) return small_float(8, 7);
  if (dtype == DType::fp16) return small_float(5, 10);
  return {H5Tcopy(standard_type(dtype)), H5Tclose};
}

DType dtype_of_hdf5(const Handle& type, const std::string& object) {
  const Lock lock;
  for (std::size_t i = 0; i < names<DType>().size(); ++i) {
    const auto candidate = static_cast<DType>(i);
    const Handle known = hdf5_type(candidate);
    if (H5Tequal(type.id(), known.id()) > 0) return candidate;
  }
  check(false, object, ": its number type is not supported by Trireme");
  return DType::fp64;
}

std::string hdf5_reason() {
  const Lock lock;
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &reason);
  return reason;
}

Handle hdf5_space(std::span<const std::int64_t> extents, const std::string& object) {
  const Lock lock;
  const std::vector<hsize_t> dimensions(extents.begin(), extents.end());
  const hid_t id = extents.empty() ? H5Screate(H5S_SCALAR)
                                   : H5Screate_simple(static_cast<int>(extents.size()),
                                                      dimensions.data(), nullptr);
  return {expect_id(id, object, "create a data space"), H5Sclose};
}

std::int64_t expect_id(std::int64_t id, const std::string& object, const char* action) {
  check(id >= 0, object, ": cannot ", action, id >= 0 ? "" : hdf5_reason());
  return id;
}

void expect_success(int status, const std::string& object, const char* action) {
  check(status >= 0, object, ": cannot ", action, status >= 0 ? "" : hdf5_reason());
}

}  // namespace trireme::io
