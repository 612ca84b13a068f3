#include <trireme/base/check.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <hdf5.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace trireme::io {
namespace {

constexpr std::int64_t locked_bytes = 16 << 20;  // at most, per HDF5 call that moves data

std::int64_t product(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::int64_t Dataset::bytes() const {
  return product(shape_) * size_of(dtype_);
}

bool Dataset::contiguous() const {
  const Lock lock;
  const Handle creation(expect_id(H5Dget_create_plist(handle_.id()), name_, "read its layout"),
                        H5Pclose);
  return H5Pget_layout(creation.id()) == H5D_CONTIGUOUS &&
         H5Pget_external_count(creation.id()) == 0;
}

std::int64_t Dataset::file_offset() const {
  const Lock lock;
  const haddr_t address = contiguous() ? H5Dget_offset(handle_.id()) : HADDR_UNDEF;
  return address == HADDR_UNDEF ? -1 : static_cast<std::int64_t>(address);
}

void Dataset::write(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                    const void* data) {
  // H5Dwrite only reads the data.
  transfer(offset, extent, static_cast<char*>(const_cast<void*>(data)), true);
}

void Dataset::read(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                   void* data) const {
  transfer(offset, extent, static_cast<char*>(data), false);
}

/// Makes one HDF5 call if the block is small. Otherwise it splits the block along its first axis
/// longer than 1.
void Dataset::transfer(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                       char* data, bool writing) const {
  check(offset.size() == shape_.size() && extent.size() == shape_.size(), name_, ": has ",
        shape_.size(), " axes, but the block has ", extent.size());
  for (std::size_t a = 0; a < shape_.size(); ++a)
    check(offset[a] >= 0 && extent[a] >= 0 && offset[a] <= shape_[a] - extent[a], name_, ": axis ",
          a, " has ", shape_[a], " elements, but the block is [", offset[a], ", ",
          offset[a] + extent[a], ")");
  const std::int64_t block_bytes = product(extent) * size_of(dtype_);
  if (block_bytes == 0) return;
  const auto axis = std::find_if(extent.begin(), extent.end(), [](auto n) { return n > 1; });
  if (block_bytes > locked_bytes && axis != extent.end()) {
    const auto a = static_cast<std::size_t>(axis - extent.begin());
    std::vector<std::int64_t> from(offset.begin(), offset.end());
    std::vector<std::int64_t> size(extent.begin(), extent.end());
    size[a] = extent[a] / 2;
    transfer(from, size, data, writing);
    data += block_bytes / extent[a] * size[a];
    from[a] += size[a];
    size[a] = extent[a] - size[a];
    transfer(from, size, data, writing);
    return;
  }
  const Lock lock;
  const Handle type = hdf5_type(dtype_);
  const Handle memory = hdf5_space(extent, name_);
  const Handle space(expect_id(H5Dget_space(handle_.id()), name_, "read its shape"), H5Sclose);
  if (!shape_.empty()) {
    const std::vector<hsize_t> start(offset.begin(), offset.end());
    const std::vector<hsize_t> count(extent.begin(), extent.end());
    expect_success(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr,
                                       count.data(), nullptr),
                   name_, "select a block");
  }
  if (writing)
    expect_success(H5Dwrite(handle_.id(), type.id(), memory.id(), space.id(), H5P_DEFAULT, data),
                   name_, "write");
  else
    expect_success(H5Dread(handle_.id(), type.id(), memory.id(), space.id(), H5P_DEFAULT, data),
                   name_, "read");
}

}  // namespace trireme::io
