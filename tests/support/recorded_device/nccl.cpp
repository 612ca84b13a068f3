// NCCL's functions on the recorded device, for all ranks of a job in one process. Nothing is
// buffered: a group holds its stream until every one of its transfers has met its counterpart in a
// group of the other rank that is first in its stream.
#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/recorded_device/recorded_device.hpp"

using trireme::testing::MemoryRange;
using trireme::testing::recorded_device;

struct ncclComm {
  /// Ranks with one id.
  struct Clique {
    std::deque<trireme::testing::StreamWork*> active;  ///< groups
  };

  int rank = 0;
  int ranks = 0;
  Clique* clique = nullptr;
  std::int64_t collectives = 0;
  int groups = 0;  // that have not ended
  bool exists = true;
};

namespace {

enum class Kind : std::uint8_t { send, receive, gather, broadcast };

struct Operation {
  Kind kind;
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
  int other;  // peer or root
  std::int64_t number = 0;
  bool done = false;
};

std::map<std::string, ncclComm::Clique>& cliques() {
  static std::map<std::string, ncclComm::Clique> all;
  return all;
}
std::vector<std::unique_ptr<ncclComm>>& communicators() {
  static std::vector<std::unique_ptr<ncclComm>> all;
  return all;
}
std::string& last_error() {
  static std::string text;
  return text;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::send:
      return "a send to ";
    case Kind::receive:
      return "a receive from ";
    case Kind::gather:
      return "an all-gather";
    case Kind::broadcast:
      return "a broadcast of ";
  }
  return "";
}

std::string describe(ncclComm_t comm, const std::vector<Operation>& operations) {
  std::string all = "rank " + std::to_string(comm->rank) + "'s group of";
  for (const Operation& o : operations)
    all += std::string(&o == operations.data() ? " " : ", ") + name_of(o.kind) +
           (o.kind == Kind::gather ? "" : std::to_string(o.other));
  return all;
}

class Group : public trireme::testing::StreamWork {
 public:
  Group(ncclComm_t comm, std::vector<Operation> operations)
      : StreamWork(describe(comm, operations)), comm_(comm), operations_(std::move(operations)) {
    ++comm_->groups;
  }

  ~Group() override {
    std::erase(comm_->clique->active, this);
    --comm_->groups;
  }
  void arrive() override {
    auto& active = comm_->clique->active;
    if (std::find(active.begin(), active.end(), this) == active.end()) active.push_back(this);
  }
  bool ready() const override {
    return all_done() || std::any_of(operations_.begin(), operations_.end(),
                                     [&](auto& o) { return !o.done && !partners(o).empty(); });
  }
  /// One operation, with all who take part.
  bool run() override {
    for (Operation& o : operations_) {
      if (o.done) continue;
      if (const auto others = partners(o); !others.empty()) {
        perform(o, others);
        break;
      }
    }
    return all_done();
  }

 private:
  bool all_done() const {
    return std::all_of(operations_.begin(), operations_.end(), [](auto& o) { return o.done; });
  }

  /// Operations that meet this one: the other end, or the collective's on all ranks in their order.
  /// Empty: not all are there yet.
  std::vector<Operation*> partners(const Operation& mine) const {
    std::vector<Operation*> found;
    const bool collective = mine.kind == Kind::gather || mine.kind == Kind::broadcast;
    for (int rank = 0; rank < comm_->ranks; ++rank) {
      if (!collective && rank != mine.other) continue;
      for (StreamWork* work : comm_->clique->active) {
        auto* const group = static_cast<Group*>(work);
        if (group->comm_->rank != rank) continue;
        const auto meets = [&](const Operation& o) {
          if (o.done) return false;
          if (collective) return o.number == mine.number && o.kind >= Kind::gather;
          return o.kind == (mine.kind == Kind::send ? Kind::receive : Kind::send) &&
                 o.other == comm_->rank;
        };
        const auto o = std::find_if(group->operations_.begin(), group->operations_.end(), meets);
        if (o == group->operations_.end()) continue;
        found.push_back(&*o);
        break;
      }
    }
    if (found.size() != (collective ? static_cast<std::size_t>(comm_->ranks) : 1)) return {};
    return found;
  }

  void perform(Operation& mine, const std::vector<Operation*>& others) const {
    for (Operation* o : others) {
      const bool pairs =
          mine.kind <= Kind::receive || (o->kind == mine.kind && o->other == mine.other);
      if (o->bytes != mine.bytes || !pairs)
        recorded_device().problem(label() + " meets another kind, or other sizes");
      o->done = true;
    }
    mine.done = true;
    const std::size_t bytes = mine.bytes;
    if (mine.kind == Kind::send) std::memcpy(others[0]->to, mine.from, bytes);
    if (mine.kind == Kind::receive) std::memcpy(mine.to, others[0]->from, bytes);
    for (std::size_t r = 0; mine.kind == Kind::gather && r < others.size(); ++r)
      for (Operation* o : others) std::memmove(o->to + r * bytes, others[r]->from, bytes);
    if (mine.kind == Kind::broadcast)
      for (Operation* o : others)
        std::memmove(o->to, others[static_cast<std::size_t>(mine.other)]->from, bytes);
  }

  ncclComm_t comm_;
  std::vector<Operation> operations_;
};

/// What has been called since the group began, by stream and communicator.
struct Pending {
  ncclComm_t comm;
  int stream;
  std::vector<Operation> operations;
};
std::vector<Pending>& all_pending() {
  static std::vector<Pending> all;
  return all;
}
int& depth() {
  return recorded_device().nccl.open_groups;
}

void launch_pending() {
  for (Pending& p : all_pending()) {
    trireme::testing::Accesses accesses;
    for (const Operation& o : p.operations) {
      const auto rank = static_cast<std::size_t>(p.comm->rank);
      const bool writes = o.kind == Kind::receive || o.kind == Kind::gather ||
                          (o.kind == Kind::broadcast && o.other != p.comm->rank);
      if (!writes || (o.kind == Kind::gather && o.from != o.to + rank * o.bytes))
        accesses.reads.push_back({o.from, o.bytes});
      const std::size_t all = o.kind == Kind::gather ? static_cast<std::size_t>(p.comm->ranks) : 1;
      if (writes) accesses.writes.push_back({o.to, all * o.bytes});
    }
    recorded_device().add(p.stream, std::make_unique<Group>(p.comm, std::move(p.operations)),
                          accesses);
  }
  all_pending().clear();
}

template <class Work>
ncclResult_t called(const char* function, const Work& work) {
  if (const int code = recorded_device().enter(function); code != 0) {
    last_error() = std::string("the test lets ") + function + " fail";
    return static_cast<ncclResult_t>(code);
  }
  return work();
}

bool exists(ncclComm_t comm) {
  return std::any_of(communicators().begin(), communicators().end(),
                     [&](auto& c) { return c.get() == comm && c->exists; });
}

ncclResult_t queue(const char* function, ncclComm_t comm, cudaStream_t stream,
                   Operation operation) {
  return called(function, [&] {
    const bool takes_peer = operation.kind != Kind::gather;
    if (!exists(comm) || (takes_peer && (operation.other < 0 || operation.other >= comm->ranks))) {
      recorded_device().problem(std::string(function) + " on a communicator that does not exist, " +
                                "or with a rank that it does not have");
      return ncclInvalidArgument;
    }
    if (operation.kind >= Kind::gather) operation.number = ++comm->collectives;
    const int number = trireme::testing::number_of(stream);
    auto& pending = all_pending();
    auto p = std::find_if(pending.begin(), pending.end(),
                          [&](auto& g) { return g.comm == comm && g.stream == number; });
    if (p == pending.end()) p = pending.insert(p, {comm, number, {}});
    p->operations.push_back(operation);
    if (depth() == 0) launch_pending();
    return ncclSuccess;
  });
}

const std::byte* bytes_at(const void* p) {
  return static_cast<const std::byte*>(p);
}
std::byte* bytes_at(void* p) {
  return static_cast<std::byte*>(p);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclUnhandledCudaError ? "a failure of CUDA"
         : result == ncclRemoteError      ? "a failure of another rank"
                                          : "another failure";
}

const char* ncclGetLastError(ncclComm_t) {
  return last_error().c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return called("ncclGetUniqueId", [&] {
    static int ids = 0;
    std::memset(id->internal, 0, sizeof id->internal);
    id->internal[100] = static_cast<char>(++ids);  // after zeros, as NCCL's may be
    cliques()[std::string(id->internal, sizeof id->internal)];
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return called("ncclCommInitRank", [&] {
    const auto clique = cliques().find(std::string(id.internal, sizeof id.internal));
    if (clique == cliques().end()) {
      recorded_device().problem("a communicator is made with an id that nobody has made");
      return ncclInvalidArgument;
    }
    communicators().push_back(std::make_unique<ncclComm>(ncclComm{rank, ranks, &clique->second}));
    *comm = communicators().back().get();
    ++recorded_device().nccl.communicators;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return called("ncclCommDestroy", [&] {
    if (!exists(comm)) {
      recorded_device().problem("a communicator that does not exist is destroyed");
      return ncclInvalidArgument;
    }
    if (comm->groups > 0)
      recorded_device().problem("a communicator is destroyed with outstanding groups");
    if (depth() > 0) recorded_device().problem("a communicator is destroyed within a group");
    comm->exists = false;
    --recorded_device().nccl.communicators;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return called("ncclCommGetAsyncError", [&] {
    // The state itself fails under this name.
    *state = static_cast<ncclResult_t>(recorded_device().enter("an operation of NCCL"));
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupStart() {
  return called("ncclGroupStart", [&] {
    ++depth();
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupEnd() {
  const ncclResult_t result = called("ncclGroupEnd", [&] { return ncclSuccess; });
  if (depth() == 0) {
    recorded_device().problem("a group ends that has not begun");
    return ncclInvalidUsage;
  }
  if (--depth() == 0) launch_pending();
  return result;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return queue("ncclSend", comm, stream, {Kind::send, bytes_at(from), nullptr, count, peer});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return queue("ncclRecv", comm, stream, {Kind::receive, nullptr, bytes_at(to), count, peer});
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue("ncclAllGather", comm, stream,
               {Kind::gather, bytes_at(from), bytes_at(to), count, 0});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return queue("ncclBroadcast", comm, stream,
               {Kind::broadcast, bytes_at(from), bytes_at(to), count, root});
}
