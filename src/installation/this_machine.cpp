#include <trireme/installation/this_machine.hpp>

namespace trireme::installation {

// src/CMakeLists.txt defines each macro as the word of an enumerator, such as `cuda`.
plan::Machine this_machine() {
  plan::Machine machine;
  machine.name = "this installation";
  machine.set_kind(plan::DeviceKind::TRIREME_DEVICE_KIND);
  machine.software.products = plan::ProductLibrary::TRIREME_PRODUCTS;
  machine.software.attention = AttentionKind::TRIREME_ATTENTION;
  machine.software.transport = TransportKind::TRIREME_TRANSPORT;
#ifdef TRIREME_AS_ON_DEVICE
  machine.device_kernels = true;
#endif
  return machine;
}

}  // namespace trireme::installation
