#pragma once

#include <trireme/plan/machine.hpp>

#include <string>

namespace trireme::installation {

/// The running build as a machine to plan for; memory and devices per node are unknown. No other
/// function of planning depends on the build.
plan::Machine this_machine();

/// "#:schema …/share/trireme/deck.schema.json": the first line of a deck or machine file, with
/// which editors complete its keys; empty if this installation has no schema with that name.
std::string schema_line(const std::string& name);

/// The driver library that the kernels of these devices need: "libcuda.so.1"; null if none.
/// Programs that are linked with it do not start without it.
const char* driver_library(plan::DeviceKind kind);

/// Reason why this node cannot run kernels that need `library`, with a remedy; empty if the loader
/// finds the library.
std::string missing_driver(const char* library);

}  // namespace trireme::installation
