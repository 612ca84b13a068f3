#pragma once

#include <trireme/plan/machine.hpp>

namespace trireme::installation {

/// The running build as a machine to plan for; memory and devices of a node are not known. No other
/// function of Trireme's planning looks at how it was built.
plan::Machine this_machine();

}  // namespace trireme::installation
