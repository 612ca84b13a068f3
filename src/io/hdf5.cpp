#include <trireme/base/check.hpp>
#include <trireme/io/hdf5.hpp>

#include "hdf5_types.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace trireme::io {
namespace {

constexpr std::int64_t locked_bytes = 16 << 20;  // per HDF5 call that moves data

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

/// Passes `id` through if HDF5 succeeded.
hid_t made(hid_t id, const std::string& object, const char* action) {
  check(id >= 0, object, ": cannot ", action, id >= 0 ? "" : hdf5_reason());
  return id;
}

void done(herr_t status, const std::string& object, const char* action) {
  check(status >= 0, object, ": cannot ", action, status >= 0 ? "" : hdf5_reason());
}

Handle file_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // File systems without locks (some Lustre and NFS mounts) are not a reason to fail.
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
  H5Pset_file_locking(access.id(), false, true);
#endif
  return access;
}

std::int64_t product(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

Handle space_of(std::span<const std::int64_t> extents, const std::string& object) {
  const std::vector<hsize_t> dimensions(extents.begin(), extents.end());
  const hid_t id = extents.empty() ? H5Screate(H5S_SCALAR)
                                   : H5Screate_simple(static_cast<int>(extents.size()),
                                                      dimensions.data(), nullptr);
  return {made(id, object, "make a data space"), H5Sclose};
}

}  // namespace

Lock::Lock() : guard_(hdf5_mutex()) {
  [[maybe_unused]] static const bool silenced = [] {
    H5dont_atexit();  // handles close what they own; HDF5's own clean-up loops after a failed write
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

std::int64_t Dataset::bytes() const {
  return product(shape_) * size_of(dtype_);
}

bool Dataset::contiguous() const {
  const Lock lock;
  const Handle creation(made(H5Dget_create_plist(handle_.id()), name_, "read its layout"),
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
  transfer(offset, extent, static_cast<char*>(const_cast<void*>(data)), true);  // H5Dwrite reads it
}

void Dataset::read(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                   void* data) const {
  transfer(offset, extent, static_cast<char*>(data), false);
}

/// One HDF5 call if the block is small; otherwise halves along the first axis that can be cut.
void Dataset::transfer(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                       char* data, bool writing) const {
  check(offset.size() == shape_.size() && extent.size() == shape_.size(), name_, ": has ",
        shape_.size(), " axes, asked for ", extent.size());
  for (std::size_t a = 0; a < shape_.size(); ++a)
    check(offset[a] >= 0 && extent[a] >= 0 && offset[a] <= shape_[a] - extent[a], name_, ": axis ",
          a, " has ", shape_[a], " elements, asked for [", offset[a], ", ", offset[a] + extent[a],
          ")");
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
  const Handle memory = space_of(extent, name_);
  const Handle space(made(H5Dget_space(handle_.id()), name_, "read its shape"), H5Sclose);
  if (!shape_.empty()) {
    const std::vector<hsize_t> start(offset.begin(), offset.end());
    const std::vector<hsize_t> count(extent.begin(), extent.end());
    done(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(),
                             nullptr),
         name_, "select a block");
  }
  if (writing)
    done(H5Dwrite(handle_.id(), type.id(), memory.id(), space.id(), H5P_DEFAULT, data), name_,
         "write");
  else
    done(H5Dread(handle_.id(), type.id(), memory.id(), space.id(), H5P_DEFAULT, data), name_,
         "read");
}

Hdf5File::Hdf5File(const std::string& path, Handle handle)
    : path_(path), handle_(std::move(handle)) {}

Hdf5File Hdf5File::create(const std::string& path, std::int64_t user_block_bytes) {
  const Lock lock;
  const Handle access = file_access();
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  done(H5Pset_userblock(creation.id(), static_cast<hsize_t>(user_block_bytes)), path,
       "reserve a user block");
  // No time stamps or creation order: equal content gives equal bytes.
  return {path, Handle(made(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()),
                            path, "create"),
                       H5Fclose)};
}

Hdf5File Hdf5File::open(const std::string& path) {
  const Lock lock;
  const Handle access = file_access();
  return {path,
          Handle(made(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), path, "open"), H5Fclose)};
}

Dataset Hdf5File::create_dataset(const std::string& name, DType dtype,
                                 const std::vector<std::int64_t>& shape) {
  const Lock lock;
  Dataset dataset;
  dataset.name_ = text(path_, ": dataset '", name, "'");
  dataset.dtype_ = dtype;
  dataset.shape_ = shape;
  const Handle type = hdf5_type(dtype);
  const Handle space = space_of(shape, dataset.name_);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.id(), 1);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.id(), false);
  const hid_t id = H5Dcreate2(handle_.id(), name.c_str(), type.id(), space.id(), links.id(),
                              creation.id(), H5P_DEFAULT);
  dataset.handle_ = Handle(made(id, dataset.name_, "create"), H5Dclose);
  return dataset;
}

Dataset Hdf5File::dataset(const std::string& name) const {
  const Lock lock;
  Dataset dataset;
  dataset.name_ = text(path_, ": dataset '", name, "'");
  dataset.handle_ = Handle(
      made(H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT), dataset.name_, "open"), H5Dclose);
  const Handle type(made(H5Dget_type(dataset.handle_.id()), dataset.name_, "read its type"),
                    H5Tclose);
  dataset.dtype_ = dtype_of_hdf5(type.id(), dataset.name_);
  const Handle space(made(H5Dget_space(dataset.handle_.id()), dataset.name_, "read its shape"),
                     H5Sclose);
  const int axes = H5Sget_simple_extent_ndims(space.id());
  check(axes >= 0, dataset.name_, ": has no simple shape");
  std::vector<hsize_t> dimensions(static_cast<std::size_t>(axes));
  if (axes > 0) H5Sget_simple_extent_dims(space.id(), dimensions.data(), nullptr);
  dataset.shape_.assign(dimensions.begin(), dimensions.end());
  return dataset;
}

bool Hdf5File::has(const std::string& name) const {
  const Lock lock;
  for (std::size_t slash = name.find('/'); slash != std::string::npos;
       slash = name.find('/', slash + 1))  // H5Lexists demands that every group above exists
    if (slash > 0 && H5Lexists(handle_.id(), name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0)
      return false;
  return H5Lexists(handle_.id(), name.c_str(), H5P_DEFAULT) > 0;
}

void Hdf5File::close() {
  const Lock lock;
  done(H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL), path_, "write");
  check(handle_.reset(), path_, ": cannot close", hdf5_reason());
}

}  // namespace trireme::io
