#pragma once

#include <trireme/plan/machine.hpp>

#include <string>

namespace trireme::installation {

/// The running build as a machine for planning; memory and devices per node are unknown.
plan::Machine this_machine();

/// First line of a deck or machine file, "#:schema …/share/trireme/NAME.schema.json", with which
/// editors complete the file's keys; "" if this installation has no schema `name`.
std::string schema_line(const std::string& name);

/// Driver library that kernels for devices of this kind need: "libcuda.so.1"; null if none.
const char* driver_library(plan::DeviceKind kind);

/// Reason why this node cannot run kernels that need the library `library`, with a remedy; empty if
/// the loader finds the library.
std::string missing_driver(const char* library);

}  // namespace trireme::installation
