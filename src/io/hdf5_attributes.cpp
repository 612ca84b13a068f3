#include <trireme/base/check.hpp>
#include <trireme/io/hdf5.hpp>

#include "hdf5_types.hpp"

namespace trireme::io {
namespace {

constexpr std::size_t attribute_limit_bytes = 60000;  // an object header message holds 64 KiB

Handle string_type(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  check(H5Tset_size(type.id(), bytes) >= 0 && H5Tset_strpad(type.id(), H5T_STR_NULLPAD) >= 0 &&
            H5Tset_cset(type.id(), H5T_CSET_UTF8) >= 0,
        "HDF5 refuses a string type", hdf5_reason());
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

/// Opens a scalar attribute and its type.
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

bool Hdf5File::has_attribute(const std::string& name) const {
  const Lock lock;
  return H5Aexists(handle_.id(), name.c_str()) > 0;
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

}  // namespace trireme::io
