#pragma once

#include <trireme/deck/key_file.hpp>
#include <trireme/plan/machine.hpp>

#include <vector>

namespace trireme::plan {

using MachineKeys = std::vector<deck::KeyOf<Machine>>;
/// Keys of a machine file, with access to the values of a Machine.
const MachineKeys& machine_keys();
/// Keys and sections of a machine file.
const deck::FileKind& machine_kind();

}  // namespace trireme::plan
