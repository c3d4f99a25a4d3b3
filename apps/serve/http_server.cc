// This accepts connections and hands each to a coroutine of its own (connection.h), on a strand of its own. Connections
// are counted in a set: while it is full, nobody is accepted, and whoever leaves it wakes the acceptor. drain() closes
// the acceptor; stop() waits for the set to be empty, for so many seconds, before it stops the threads.
#include "http_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "connection.h"
#include "tenon/core/error.h"

namespace tenon::serve {
namespace {

net::ssl::context make_tls(const HttpOptions& o) {
  net::ssl::context tls(net::ssl::context::tls_server);
  tls.set_options(net::ssl::context::no_tlsv1 | net::ssl::context::no_tlsv1_1);
  if (o.tls_cert.empty()) return tls;
  error_code problem;
  tls.use_certificate_chain_file(o.tls_cert, problem);
  if (problem) throw Error(ErrorCode::kIo, {o.tls_cert, 0, 0}, "cannot be used as a certificate: " + problem.message());
  tls.use_private_key_file(o.tls_key, net::ssl::context::pem, problem);
  if (problem)
    throw Error(ErrorCode::kIo, {o.tls_key, 0, 0}, "cannot be used as the certificate's key: " + problem.message());
  return tls;
}

}  // namespace

// This outlives all that runs in its context.
struct HttpServer::Impl {
  explicit Impl(const HttpOptions& o)
      : options(o), tls(make_tls(o)), acceptor(net::make_strand(context)), room(acceptor.get_executor()) {}

  void listen();
  net::awaitable<void> accept_all();
  template <class Stream>
  void begin(Stream stream);

  const HttpOptions options;
  net::ssl::context tls;
  net::io_context context;
  net::executor_work_guard<net::io_context::executor_type> work{context.get_executor()};
  tcp::acceptor acceptor;
  net::steady_timer room;  // sleeps while there are as many connections as there may be
  std::shared_ptr<Shared> shared;
  std::vector<std::thread> threads;

  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_set<std::shared_ptr<ConnectionBase>> connections;
  bool ended = false;  // accept_all() has
};

void HttpServer::Impl::listen() {
  const std::string where = options.host + ":" + std::to_string(options.port);
  error_code problem;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, problem);
  if (problem || found.empty()) {
    throw Error(ErrorCode::kIo, "cannot listen on " + where + ": " + problem.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), problem);
  if (!problem) acceptor.set_option(net::socket_base::reuse_address(true), problem);
  if (!problem) acceptor.bind(endpoint, problem);
  if (!problem) acceptor.listen(net::socket_base::max_listen_connections, problem);
  if (problem) throw Error(ErrorCode::kIo, "cannot listen on " + where + ": " + problem.message());
}

template <class Stream>
void HttpServer::Impl::begin(Stream stream) {
  auto connection = std::make_shared<Connection<Stream>>(std::move(stream), shared);
  const auto executor = connection->executor();
  {
    const std::lock_guard lock(mutex);
    connections.insert(connection);
  }
  net::co_spawn(
      executor, [connection] { return connection->run(); },
      [this, connection](const std::exception_ptr&) {  // the connection has no memory: it alone ends
        const std::lock_guard lock(mutex);
        connections.erase(connection);
        net::post(acceptor.get_executor(), [this] { room.cancel(); });
        changed.notify_all();
      });
}

net::awaitable<void> HttpServer::Impl::accept_all() {
  while (!shared->draining) {
    size_t count = 0;
    {
      const std::lock_guard lock(mutex);
      count = connections.size();
    }
    if (count >= options.max_connections) {
      room.expires_at(Clock::time_point::max());
      static_cast<void>(co_await room.async_wait(kCall));
      continue;
    }
    auto [problem, socket] = co_await acceptor.async_accept(net::make_strand(context), kCall);
    if (problem) {  // one connection has a problem, or no descriptor is left: that is no reason to end
      if (shared->draining || !acceptor.is_open()) break;
      room.expires_after(std::chrono::milliseconds(50));
      static_cast<void>(co_await room.async_wait(kCall));
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (options.tls_cert.empty()) {
      begin(PlainStream(std::move(socket)));
    } else {
      begin(TlsStream(beast::tcp_stream(std::move(socket)), tls));
    }
  }
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

HttpServer::HttpServer(const HttpOptions& options) : impl_(std::make_unique<Impl>(options)) {
  impl_->listen();
}

HttpServer::~HttpServer() {
  stop(0);
}

std::string HttpServer::url() const {
  const tcp::endpoint at = impl_->acceptor.local_endpoint();
  const std::string address = at.address().to_string();
  return std::string(impl_->options.tls_cert.empty() ? "http" : "https") + "://" +
         (at.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(at.port());
}

void HttpServer::start(Api& api, Driver& driver) {
  impl_->shared = std::make_shared<Shared>(impl_->options, api, driver);
  net::co_spawn(
      impl_->acceptor.get_executor(), [impl = impl_.get()] { return impl->accept_all(); }, net::detached);
  for (uint32_t i = 0; i < impl_->options.threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->context.run(); });
  }
}

void HttpServer::post(std::function<void()> function) {
  net::post(impl_->context, std::move(function));
}

void HttpServer::drain() {
  if (!impl_->shared) return;
  impl_->shared->draining = true;
  net::post(impl_->acceptor.get_executor(), [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
    impl->room.cancel();
  });
  const std::lock_guard lock(impl_->mutex);
  for (const auto& connection : impl_->connections) connection->drain();
}

void HttpServer::stop(double seconds) {
  if (impl_->threads.empty()) return;
  drain();
  {
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait_for(lock, duration(seconds), [&] { return impl_->ended && impl_->connections.empty(); });
  }
  impl_->work.reset();
  impl_->context.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

}  // namespace tenon::serve
