// HDF5 files: creation, opening, contiguous and virtual datasets, and attributes.
#include <trireme/io/hdf5_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/input.hpp>

#include <fcntl.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace trireme::io {
namespace {

Handle file_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // File systems without file locks, such as some Lustre and NFS mounts, are accepted.
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
  H5Pset_file_locking(access.id(), false, true);
#endif
  return access;
}

/// Keeps all metadata of a new file in memory, because evictions are slow with many datasets.
void keep_structures(const Handle& access) {
  H5AC_cache_config_t config{};
  config.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  if (H5Pget_mdc_config(access.id(), &config) < 0) return;
  config.set_initial_size = true;
  config.initial_size = std::size_t{32} << 20;
  config.max_size = std::size_t{128} << 20;  // HDF5's maximum
  config.min_clean_fraction = 0;
  config.incr_mode = H5C_incr__off;
  config.flash_incr_mode = H5C_flash_incr__off;
  config.decr_mode = H5C_decr__off;
  config.evictions_enabled = false;
  H5Pset_mdc_config(access.id(), &config);
}

constexpr hsize_t aligned_bytes = 1 << 20;            // smaller objects are not aligned
constexpr std::size_t attribute_limit_bytes = 60000;  // an object header message holds up to 64 KiB

Handle string_type(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  check(H5Tset_size(type.id(), bytes) >= 0 && H5Tset_strpad(type.id(), H5T_STR_NULLPAD) >= 0 &&
            H5Tset_cset(type.id(), H5T_CSET_UTF8) >= 0,
        "HDF5 cannot create a string type", hdf5_reason());
  return type;
}

void write_scalar(hid_t file, const std::string& object, const std::string& name, hid_t type,
                  const void* value) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(file, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  check(attribute.valid() && H5Awrite(attribute.id(), type, value) >= 0, object,
        ": cannot write attribute '", name, "'", hdf5_reason());
}

/// Opens an attribute, which must be a single value, and its type.
std::pair<Handle, Handle> open_scalar(hid_t file, const std::string& object,
                                      const std::string& name) {
  Handle attribute(H5Aopen(file, name.c_str(), H5P_DEFAULT), H5Aclose);
  check(attribute.valid(), object, ": has no attribute '", name, "'");
  Handle type(H5Aget_type(attribute.id()), H5Tclose);
  const Handle space(H5Aget_space(attribute.id()), H5Sclose);
  check(type.valid() && H5Sget_simple_extent_npoints(space.id()) == 1, object, ": attribute '",
        name, "' is not a single value");
  return {std::move(attribute), std::move(type)};
}

}  // namespace

Hdf5File::Hdf5File(const std::string& path, Handle handle)
    : path_(path), handle_(std::move(handle)) {}

Hdf5File Hdf5File::create(const std::string& path, std::int64_t user_block_bytes,
                          std::int64_t structure_bytes, std::int64_t dataset_alignment) {
  const Lock lock;
  const Handle access = file_access();
  keep_structures(access);
  if (structure_bytes > 0)
    H5Pset_meta_block_size(access.id(), static_cast<hsize_t>(structure_bytes));
  if (dataset_alignment > 0)
    H5Pset_alignment(access.id(), aligned_bytes, static_cast<hsize_t>(dataset_alignment));
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  expect_success(H5Pset_userblock(creation.id(), static_cast<hsize_t>(user_block_bytes)), path,
                 "reserve a user block");
  Hdf5File file(path,
                Handle(expect_id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()),
                                 path, "create"),
                       H5Fclose));
  // From here on, HDF5's descriptor is the file in memory.
  file.memory_ = std::make_unique<MemoryFile>();
  void* descriptor = nullptr;
  expect_success(H5Fget_vfd_handle(file.handle_.id(), access.id(), &descriptor), path, "create");
  const bool redirected =
      ::dup3(file.memory_->descriptor(), *static_cast<const int*>(descriptor), O_CLOEXEC) >= 0;
  check(redirected, path, ": cannot build it in memory: ", std::strerror(errno));
  return file;
}

Hdf5File Hdf5File::open(const std::string& path) {
  expect_file(path, path);
  const Lock lock;
  const Handle access = file_access();
  return {path, Handle(expect_id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), path, "open"),
                       H5Fclose)};
}

Dataset Hdf5File::create_dataset(const std::string& name, DType dtype,
                                 const std::vector<std::int64_t>& shape) {
  const Lock lock;
  Dataset dataset;
  dataset.name_ = text(path_, ": dataset '", name, "'");
  dataset.dtype_ = dtype;
  dataset.shape_ = shape;
  const Handle type = hdf5_type(dtype);
  const Handle space = hdf5_space(shape, dataset.name_);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.id(), 1);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_layout(creation.id(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.id(), false);
  const hid_t id = H5Dcreate2(handle_.id(), name.c_str(), type.id(), space.id(), links.id(),
                              creation.id(), H5P_DEFAULT);
  dataset.handle_ = Handle(expect_id(id, dataset.name_, "create"), H5Dclose);
  return dataset;
}

Dataset Hdf5File::dataset(const std::string& name) const {
  const Lock lock;
  Dataset dataset;
  dataset.name_ = text(path_, ": dataset '", name, "'");
  dataset.handle_ =
      Handle(expect_id(H5Dopen2(handle_.id(), name.c_str(), H5P_DEFAULT), dataset.name_, "open"),
             H5Dclose);
  const Handle type(expect_id(H5Dget_type(dataset.handle_.id()), dataset.name_, "read its type"),
                    H5Tclose);
  dataset.dtype_ = dtype_of_hdf5(type, dataset.name_);
  const Handle space(expect_id(H5Dget_space(dataset.handle_.id()), dataset.name_, "read its shape"),
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
       slash = name.find('/', slash + 1))  // H5Lexists requires that all parent groups exist
    if (slash > 0 && H5Lexists(handle_.id(), name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0)
      return false;
  return H5Lexists(handle_.id(), name.c_str(), H5P_DEFAULT) > 0;
}

void Hdf5File::set_attribute(const std::string& name, std::string_view value) {
  const Lock lock;
  check(value.size() <= attribute_limit_bytes, path_, ": attribute '", name, "' has ", value.size(),
        " bytes, expected at most ", attribute_limit_bytes);
  std::string padded(value);
  if (padded.empty()) padded.push_back('\0');  // HDF5 has no string of size 0
  const Handle type = string_type(padded.size());
  write_scalar(handle_.id(), path_, name, type.id(), padded.data());
}

void Hdf5File::set_attribute(const std::string& name, std::int64_t value) {
  const Lock lock;
  write_scalar(handle_.id(), path_, name, H5T_STD_I64LE, &value);
}

std::string Hdf5File::string_attribute(const std::string& name) const {
  const Lock lock;
  const auto [attribute, type] = open_scalar(handle_.id(), path_, name);
  check(H5Tget_class(type.id()) == H5T_STRING && H5Tis_variable_str(type.id()) == 0, path_,
        ": attribute '", name, "' is not a string of fixed length");
  std::string value(H5Tget_size(type.id()), '\0');
  check(H5Aread(attribute.id(), type.id(), value.data()) >= 0, path_, ": cannot read attribute '",
        name, "'", hdf5_reason());
  value.erase(value.find_last_not_of('\0') + 1);
  return value;
}

std::int64_t Hdf5File::integer_attribute(const std::string& name) const {
  const Lock lock;
  const auto [attribute, type] = open_scalar(handle_.id(), path_, name);
  check(H5Tequal(type.id(), H5T_STD_I64LE) > 0, path_, ": attribute '", name,
        "' is not a 64-bit integer");
  std::int64_t value = 0;
  check(H5Aread(attribute.id(), type.id(), &value) >= 0, path_, ": cannot read attribute '", name,
        "'", hdf5_reason());
  return value;
}

/// Closes the file in HDF5. memory_ then has all bytes of a created file.
void Hdf5File::finish() {
  const Lock lock;
  expect_success(H5Fflush(handle_.id(), H5F_SCOPE_GLOBAL), path_, "write");
  check(handle_.reset(), path_, ": cannot close", hdf5_reason());
}

void Hdf5File::close() {
  finish();
  if (!memory_) return;
  const int to = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  check(to >= 0, path_, ": cannot open for writing: ", std::strerror(errno));
  const struct Closed {
    int descriptor;
    ~Closed() { ::close(descriptor); }
  } closed{to};
  memory_->for_each_part([&](std::int64_t at, const void* data, std::size_t bytes) {
    write_at(to, path_, at, data, bytes, memory_->size());
  });
  const bool sized = ::ftruncate(to, memory_->size()) == 0;
  check(sized, path_, ": cannot give it ", memory_->size(), " bytes: ", std::strerror(errno));
}

void Hdf5File::close_into(AtomicFile& file) {
  finish();
  memory_->for_each_part(
      [&](std::int64_t at, const void* data, std::size_t bytes) { file.write(at, data, bytes); });
  const bool sized = ::ftruncate(file.descriptor(), memory_->size()) == 0;
  check(sized, file.path(), ": cannot give it ", memory_->size(), " bytes: ", std::strerror(errno));
}

namespace {

constexpr std::int64_t locked_bytes = 16 << 20;  // largest block of one HDF5 call

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
  // H5Dwrite does not change the data.
  transfer(offset, extent, static_cast<char*>(const_cast<void*>(data)), true);
}

void Dataset::read(std::span<const std::int64_t> offset, std::span<const std::int64_t> extent,
                   void* data) const {
  transfer(offset, extent, static_cast<char*>(data), false);
}

/// Copies a block with one HDF5 call, or splits a large block in two and copies the parts.
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

namespace {

std::string without_patterns(const std::string& name) {  // HDF5 replaces "%b" with a number
  if (name.find('%') == std::string::npos) return name;
  std::string out;
  for (const char c : name) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

void set_fill_value(const Handle& creation, DType dtype, const Handle& type,
                    const std::string& object) {
  std::uint64_t bits = 0;  // a quiet NaN; on little endian the low bytes hold the value
  if (dtype == DType::fp64) bits = 0x7FF8000000000000u;
  if (dtype == DType::fp32) bits = 0x7FC00000u;
  if (dtype == DType::bf16) bits = 0x7FC0u;
  if (dtype == DType::fp16) bits = 0x7E00u;
  if (bits != 0)
    expect_success(H5Pset_fill_value(creation.id(), type.id(), &bits), object, "fill with NaN");
}

void select(const Handle& space, const VirtualSource& part, const std::string& object) {
  if (part.extent.empty()) return;  // a scalar
  const std::vector<hsize_t> start(part.offset.begin(), part.offset.end());
  const std::vector<hsize_t> count(part.extent.begin(), part.extent.end());
  const std::vector<hsize_t> once(count.size(), 1);
  expect_success(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, once.data(),
                                     count.data()),
                 object, "select a part");
}

}  // namespace

void Hdf5File::create_virtual_dataset(const std::string& name, DType dtype,
                                      const std::vector<std::int64_t>& shape,
                                      std::span<const VirtualSource> parts) {
  const Lock lock;
  const std::string object = text(path_, ": dataset '", name, "'");
  const Handle type = hdf5_type(dtype);
  const Handle space = hdf5_space(shape, object);
  const Handle selected = hdf5_space(shape, object);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.id(), 1);
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.id(), false);
  set_fill_value(creation, dtype, type, object);
  Handle source;
  const VirtualSource* before = nullptr;
  for (const auto& part : parts) {
    select(selected, part, object);
    if (before == nullptr || before->extent != part.extent)  // most parts have equal extents
      source = hdf5_space(part.extent, object);
    before = &part;
    expect_success(H5Pset_virtual(creation.id(), selected.id(), without_patterns(part.file).c_str(),
                                  without_patterns(part.dataset).c_str(), source.id()),
                   object, "map a part");
  }
  const Handle dataset(expect_id(H5Dcreate2(handle_.id(), name.c_str(), type.id(), space.id(),
                                            links.id(), creation.id(), H5P_DEFAULT),
                                 object, "create"),
                       H5Dclose);
}

namespace {

constexpr std::int64_t piece_bytes = 1 << 20;

}  // namespace

MemoryFile::MemoryFile() : descriptor_(::memfd_create("trireme", MFD_CLOEXEC)) {
  check(descriptor_ >= 0, "cannot create a file in memory: ", std::strerror(errno));
}

MemoryFile::~MemoryFile() {
  ::close(descriptor_);
}

std::int64_t MemoryFile::size() const {
  struct stat status {};
  ::fstat(descriptor_, &status);
  return status.st_size;
}

void MemoryFile::for_each_part(const Use& use) const {
  std::vector<char> piece(static_cast<std::size_t>(piece_bytes));
  std::int64_t begin = ::lseek(descriptor_, 0, SEEK_DATA);
  while (begin >= 0) {  // lseek fails with ENXIO after the last part
    const std::int64_t end = ::lseek(descriptor_, begin, SEEK_HOLE);
    for (std::int64_t at = begin; at < end; at += piece_bytes) {
      const auto bytes = static_cast<std::size_t>(std::min(piece_bytes, end - at));
      const auto got = ::pread(descriptor_, piece.data(), bytes, at);
      check(got == static_cast<ssize_t>(bytes),
            "cannot read back a file in memory: ", std::strerror(errno));
      use(at, piece.data(), bytes);
    }
    begin = ::lseek(descriptor_, end, SEEK_DATA);
  }
}

}  // namespace trireme::io
