#include "launcher/planning/startup_messages.h"

namespace bulkhead {

internal::DeviceBudget ToProto(const DeviceBudget& budget) {
  const auto& [rank, host, device, cores, numa_nodes, total, others, driver, reserve, transient,
               probed] = budget;
  internal::DeviceBudget message;
  message.set_rank(rank);
  message.set_host(host);
  message.set_device(device);
  message.set_cores(cores);
  message.set_numa_nodes(numa_nodes);
  message.set_total_bytes(total);
  message.set_others_bytes(others);
  message.set_driver_bytes(driver);
  message.set_reserve_bytes(reserve);
  message.set_transient_bytes(transient);
  message.set_probed(probed);
  return message;
}

DeviceBudget FromProto(const internal::DeviceBudget& message) {
  return {message.rank(),          message.host(),
          message.device(),        message.cores(),
          message.numa_nodes(),    message.total_bytes(),
          message.others_bytes(),  message.driver_bytes(),
          message.reserve_bytes(), message.transient_bytes(),
          message.probed()};
}

internal::RankHost::Limit ToProto(const HostLimit& limit) {
  const auto& [id, name, total, available, cgroup] = limit;
  internal::RankHost::Limit message;
  message.set_id(id);
  message.set_name(name);
  message.set_total_bytes(total);
  message.set_available_bytes(available);
  message.set_cgroup(cgroup);
  return message;
}

HostLimit FromProto(const internal::RankHost::Limit& message) {
  return {message.id(), message.name(), message.total_bytes(), message.available_bytes(),
          message.cgroup()};
}

internal::RankHost::Request ToProto(const HostRequest& request) {
  const auto& [queued, host_memory, tokenizer, prefix_caching, ranks, http, metrics_port, tls,
               access_control, kv_events] = request;
  internal::RankHost::Request message;
  if (queued.has_value()) message.set_max_num_queued_reqs(*queued);
  if (host_memory.has_value()) message.set_host_memory(*host_memory);
  message.set_tokenizer_file_bytes(tokenizer);
  message.set_prefix_caching(prefix_caching);
  message.set_ranks_on_host(ranks);
  message.set_http(http);
  message.set_metrics_port(metrics_port);
  message.set_tls(tls);
  message.set_access_control(access_control);
  message.set_kv_events(kv_events);
  return message;
}

HostRequest FromProto(const internal::RankHost::Request& message) {
  HostRequest request;
  if (message.has_max_num_queued_reqs())
    request.max_num_queued_reqs = message.max_num_queued_reqs();
  if (message.has_host_memory()) request.host_memory = message.host_memory();
  request.tokenizer_file_bytes = message.tokenizer_file_bytes();
  request.prefix_caching = message.prefix_caching();
  request.ranks_on_host = message.ranks_on_host();
  request.http = message.http();
  request.metrics_port = message.metrics_port();
  request.tls = message.tls();
  request.access_control = message.access_control();
  request.kv_events = message.kv_events();
  return request;
}

}  // namespace bulkhead
