#pragma once

#include <trireme/checkpoint/manifest.hpp>

#include <string>

namespace trireme::checkpoint {

/// Writes index.h5 of a folder, flushed to the device: an HDF5 file that shows every array whole,
/// as a virtual dataset over the shards, by their names relative to the folder; step, samples,
/// layout and library are attributes. Returns what the manifest says of the file.
FileInfo write_index(const std::string& folder, const Manifest& manifest);

}  // namespace trireme::checkpoint
