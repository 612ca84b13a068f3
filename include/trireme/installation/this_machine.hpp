#pragma once

#include <trireme/plan/machine.hpp>

namespace trireme::installation {

/// The running build as a machine to plan for; memory and devices per node are unknown. This is the
/// only function of planning that depends on the build.
plan::Machine this_machine();

}  // namespace trireme::installation
