#pragma once

#include <trireme/plan/machine.hpp>

#include <string>

namespace trireme::installation {

/// The running build as a machine for planning; memory and devices per node are unknown. No other
/// function of planning depends on the build.
plan::Machine this_machine();

/// "#:schema …/share/trireme/deck.schema.json": the first line of a deck or machine file, with
/// which editors complete the file's keys; empty if this installation has no schema `name`.
std::string schema_line(const std::string& name);

/// The driver library that kernels for devices of this kind need: "libcuda.so.1"; null if they need
/// none. A program that is linked with the driver library does not start on a node without it.
const char* driver_library(plan::DeviceKind kind);

/// Reason why this node cannot run kernels that need the library `library`, with a remedy; empty if
/// the loader finds the library.
std::string missing_driver(const char* library);

}  // namespace trireme::installation
