#include <trireme/base/check.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <hdf5.h>

#include <algorithm>

namespace trireme::io {
namespace {

std::string without_patterns(const std::string& name) {  // HDF5 replaces %b with a number
  if (name.find('%') == std::string::npos) return name;
  std::string out;
  for (const char c : name) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

void set_fill_value(const Handle& creation, DType dtype, const Handle& type,
                    const std::string& object) {
  std::uint64_t bits = 0;  // a quiet NaN; on little endian the low bytes are the value
  if (dtype == DType::fp64) bits = 0x7FF8000000000000u;
  if (dtype == DType::fp32) bits = 0x7FC00000u;
  if (dtype == DType::bf16) bits = 0x7FC0u;
  if (dtype == DType::fp16) bits = 0x7E00u;
  if (bits != 0)
    expect_success(H5Pset_fill_value(creation.id(), type.id(), &bits), object, "fill with NaN");
}

void select(const Handle& space, const VirtualPart& part, const std::string& object) {
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
                                      std::span<const VirtualPart> parts) {
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
  const VirtualPart* before = nullptr;
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

}  // namespace trireme::io
