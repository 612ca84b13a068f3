#pragma once

#include <trireme/plan/machine_file.hpp>

#include <string>

namespace trireme::testing {

inline const plan::Machine host_machine;

/// A build for this kind of device without any library.
inline plan::Machine installation(plan::DeviceKind kind) {
  plan::Machine machine;
  machine.name = "this installation";
  machine.set_kind(kind);
  return machine;
}

/// A machine file: kind on line 4, memory 5, devices 7, products 9, attention 10, transport 11.
inline std::string machine_file(const std::string& kind, const std::string& products,
                                const std::string& attention, const std::string& transport) {
  return "[machine]\nname = \"box\"\n[device]\nkind = \"" + kind +
         "\"\nmemory = \"80 GiB\"\n[node]\ndevices = 8\n[software]\nproducts = \"" + products +
         "\"\nattention = \"" + attention + "\"\ntransport = \"" + transport + "\"\n";
}

inline plan::Machine machine_of(const std::string& kind, const std::string& products,
                                const std::string& attention, const std::string& transport) {
  return plan::parse_machine(machine_file(kind, products, attention, transport), "m.toml");
}

}  // namespace trireme::testing
