#pragma once

#include <trireme/base/types.hpp>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

namespace trireme::io {

/// Global recursive lock around all HDF5 calls, because distributions build HDF5 without thread
/// safety. The first lock also silences HDF5's own error output.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

/// Owns one HDF5 identifier (an hid_t: a signed 64-bit number) and closes it.
class Handle {
 public:
  using Close = int (*)(std::int64_t);
  Handle() = default;
  Handle(std::int64_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;

  std::int64_t id() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes the identifier now. Returns false if HDF5 failed; the data may then be incomplete.
  bool reset();

 private:
  std::int64_t id_ = -1;
  Close close_ = nullptr;
};

/// HDF5's type for a DType, in memory and in the file; bf16 and fp16 are custom float types.
Handle hdf5_type(DType dtype);

/// A dataspace of these extents; a scalar dataspace if there are none. Errors name `object`.
Handle hdf5_space(std::span<const std::int64_t> extents, const std::string& object);

/// The DType of an HDF5 type; Error naming `object` for any other type.
DType dtype_of_hdf5(const Handle& type, const std::string& object);

/// HDF5's message about the call that has just failed, as ": ...", or "".
std::string hdf5_reason();

/// Returns `id`; throws Error "`object`: cannot `action`: reason" if `id` is negative.
std::int64_t expect_id(std::int64_t id, const std::string& object, const char* action);
/// Throws Error "`object`: cannot `action`: reason" if HDF5's status code is negative.
void expect_success(int status, const std::string& object, const char* action);

}  // namespace trireme::io
