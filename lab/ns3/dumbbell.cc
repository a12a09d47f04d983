// TCP flows over one bottleneck in ns-3 3.37: the reference that the TCP model of farhaul's
// simulator is compared with.
//
//     sender  ---- rate, delay, queue of N packets, random loss --->  receiver
//             <--- rate, delay ------------------------------------
//
// Two nodes are enough for a dumbbell whose access links are infinitely fast: every flow's sender
// is in one node and every receiver in the other. What counts, and how, is told at each setting
// below; README.md has the same in a table. Prints one line of JSON.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint32_t kHeaders = 40;  // IPv4 and TCP, without options
constexpr uint32_t kPpp = 2;       // what ns-3's point-to-point device adds to each packet
constexpr uint16_t kPort = 5000;
// Streams of random numbers are numbered by hand: those numbered automatically change with
// whatever else the program creates.
constexpr int64_t kLossStream = 1;
constexpr int64_t kStartStream = 2;

struct Options {
    std::string tcp = "TcpNewReno";
    double rate = 10e6;        // bits/s, of IP packets
    double rtt_ms = 100;       // twice the propagation delay
    uint32_t queue = 84;       // packets, with the one in transmission
    double loss = 0;           // probability, each packet towards the receiver
    uint32_t flows = 1;
    uint32_t mtu = 1500;       // bytes of an IP packet that is full
    uint32_t delack_count = 2; // 1: every segment is acknowledged at once
    double delack_ms = 40;
    double min_rto_ms = 200;
    uint32_t initial_window = 10;
    bool sack = true;
    bool hystart = false;
    uint64_t buffer = 0;       // bytes of each socket's buffers; 0: so much that they never limit
    double seconds = 120;
    double warmup = 20;
    double spread = 1;         // flows begin at random within so many seconds
    uint32_t seed = 1;
    std::string scheduler = "MapScheduler"; // ns-3's default; it changes only the speed
};

Options Parse(int argc, char** argv) {
    Options o;
    CommandLine cmd(__FILE__);
    cmd.AddValue("tcp", "TcpNewReno, TcpLinuxReno, TcpCubic or another of ns-3's", o.tcp);
    cmd.AddValue("rate", "bits/s, counted on IP packets", o.rate);
    cmd.AddValue("rtt", "ms, twice the propagation delay", o.rtt_ms);
    cmd.AddValue("queue", "packets, the one in transmission included", o.queue);
    cmd.AddValue("loss", "probability of loss, towards the receiver", o.loss);
    cmd.AddValue("flows", "number of flows", o.flows);
    cmd.AddValue("mtu", "bytes of a full IP packet", o.mtu);
    cmd.AddValue("delack", "segments per ACK; 1: no delayed ACK", o.delack_count);
    cmd.AddValue("delackTimer", "ms", o.delack_ms);
    cmd.AddValue("minRto", "ms", o.min_rto_ms);
    cmd.AddValue("initialWindow", "segments", o.initial_window);
    cmd.AddValue("sack", "selective acknowledgements", o.sack);
    cmd.AddValue("hystart", "Cubic: leave slow start early", o.hystart);
    cmd.AddValue("buffer", "bytes of each socket buffer; 0: never limits", o.buffer);
    cmd.AddValue("seconds", "simulated in all", o.seconds);
    cmd.AddValue("warmup", "seconds not counted", o.warmup);
    cmd.AddValue("spread", "seconds in which flows begin", o.spread);
    cmd.AddValue("seed", "the run's number", o.seed);
    cmd.AddValue("scheduler", "MapScheduler, HeapScheduler, PriorityQueueScheduler …", o.scheduler);
    cmd.Parse(argc, argv);
    NS_ABORT_MSG_IF(o.queue < 2, "a queue of at least 2 packets: one of them is in transmission");
    NS_ABORT_MSG_IF(o.warmup >= o.seconds, "the warm-up does not end before the run");
    NS_ABORT_MSG_IF(o.flows < 1 || o.flows > 10000, "from 1 to 10000 flows");
    NS_ABORT_MSG_IF(o.delack_count > 1 && o.delack_ms >= o.min_rto_ms,
                    "a delayed-ACK timer not below the minimum RTO: each lone segment would time "
                    "out, and flows starve");
    return o;
}

// Bytes in order that each flow's receiver has got.
//
// Not ns3::PacketSink, because that needs either one listening socket for each flow, which doubles
// the list that ns-3 searches for each packet, or a look at each packet's sender.
class Receivers {
public:
    Receivers(Ptr<Node> node, uint32_t flows) : bytes_(flows, 0) {
        listening_ = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
        NS_ABORT_IF(listening_->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort)) != 0);
        NS_ABORT_IF(listening_->Listen() != 0);
        listening_->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                      MakeCallback(&Receivers::Accept, this));
    }

    // In the order in which they connected.
    const std::vector<uint64_t>& Bytes() const { return bytes_; }

private:
    void Accept(Ptr<Socket> socket, const Address&) {
        NS_ABORT_IF(flow_of_.size() >= bytes_.size());
        flow_of_.emplace(PeekPointer(socket), flow_of_.size());
        socket->SetRecvCallback(MakeCallback(&Receivers::Read, this));
    }

    void Read(Ptr<Socket> socket) {
        uint64_t& bytes = bytes_[flow_of_.at(PeekPointer(socket))];
        while (Ptr<Packet> packet = socket->Recv()) {
            if (packet->GetSize() == 0) {
                break;
            }
            bytes += packet->GetSize();
        }
    }

    Ptr<Socket> listening_;
    std::vector<uint64_t> bytes_;
    std::map<Socket*, size_t> flow_of_;
};

// What is read of the counters at the end of the warm-up, to be subtracted at the end.
struct Counters {
    std::vector<uint64_t> bytes;
    uint64_t data_packets = 0; // that entered the bottleneck's queue
    uint64_t ack_packets = 0;
    uint64_t queue_drops = 0;
    uint64_t random_drops = 0;
    uint64_t recoveries = 0; // times that a sender began fast recovery
    uint64_t timeouts = 0;
    std::chrono::steady_clock::time_point wall;
};

void SetTcp(const Options& o) {
    const uint32_t segment = o.mtu - kHeaders;
    double bdp_bytes = o.rate / 8 * o.rtt_ms / 1e3;
    // Behind a hole the receiver stores a window, and another while the hole is being repaired.
    uint64_t buffer = o.buffer != 0
                          ? o.buffer
                          : static_cast<uint64_t>(4 * (bdp_bytes + 1.0 * o.queue * o.mtu)) + 262144;

    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName("ns3::" + o.tcp)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    // Without timestamps the data packet is 40 bytes of headers and the segment. SACK blocks are in
    // ACKs only.
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(o.sack));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(o.min_rto_ms / 1e3)));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(o.initial_window));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(o.delack_count));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(Seconds(o.delack_ms / 1e3)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpCubic::HyStart", BooleanValue(o.hystart));
}

NetDeviceContainer Connect(const Options& o, const NodeContainer& nodes) {
    PointToPointHelper link;
    // The device counts the PPP header in its rate. With the rate raised in the same proportion a
    // full packet takes as long as its IP bytes do at the rate asked for. An ACK of 40 bytes takes
    // as long as 41.9 would.
    double rate = o.rate * (o.mtu + kPpp) / o.mtu;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(std::llround(rate))));
    link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(std::llround(o.rtt_ms * 1e6 / 2))));
    // The device takes the packet that it transmits out of its queue: one less than what is asked
    // for waits.
    link.SetQueue("ns3::DropTailQueue", "MaxSize",
                  QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, o.queue - 1)));
    // Otherwise the device tells the layer above when it is full, and ns-3 would put an fq_codel
    // of 10240 packets there.
    link.DisableFlowControl();
    NetDeviceContainer devices = link.Install(nodes);

    if (o.loss > 0) {
        Ptr<RateErrorModel> loss = CreateObject<RateErrorModel>();
        loss->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        loss->SetRate(o.loss);
        loss->AssignStreams(kLossStream);
        devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(loss));
    }
    // ACKs are never dropped.
    DynamicCast<PointToPointNetDevice>(devices.Get(1))
        ->GetQueue()
        ->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, 10'000'000));
    return devices;
}

// How often senders saw loss, and in which way.
struct Losses {
    uint64_t recoveries = 0;
    uint64_t timeouts = 0;

    void Watch(Ptr<BulkSendApplication> application) {
        application->GetSocket()->TraceConnectWithoutContext(
            "CongState", MakeCallback(&Losses::Changed, this));
    }

    void Changed(TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t state) {
        recoveries += state == TcpSocketState::CA_RECOVERY;
        timeouts += state == TcpSocketState::CA_LOSS;
    }
};

void Send(const Options& o, Ptr<Node> node, Ipv4Address to, Losses* losses) {
    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    start->SetStream(kStartStream);
    for (uint32_t flow = 0; flow < o.flows; ++flow) {
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(to, kPort));
        bulk.SetAttribute("MaxBytes", UintegerValue(0)); // without end
        // Whole segments, so that none is sent that is smaller.
        bulk.SetAttribute("SendSize", UintegerValue(o.mtu - kHeaders));
        ApplicationContainer apps = bulk.Install(node);
        Time at = Seconds(start->GetValue(0, o.spread));
        apps.Start(at);
        // The application has no socket before it begins.
        Simulator::Schedule(at + NanoSeconds(1), &Losses::Watch, losses,
                            DynamicCast<BulkSendApplication>(apps.Get(0)));
        apps.Stop(Seconds(o.seconds + 1));
    }
}

std::string Json(const Options& o, const Counters& begin, const Counters& end) {
    const double counted = o.seconds - o.warmup;
    std::vector<double> flows;
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < end.bytes.size(); ++i) {
        double bps = 8.0 * (end.bytes[i] - begin.bytes[i]) / counted;
        flows.push_back(bps);
        sum += bps;
        squares += bps * bps;
    }
    uint64_t data = end.data_packets - begin.data_packets;
    uint64_t acks = end.ack_packets - begin.ack_packets;
    double wall = std::chrono::duration<double>(end.wall - begin.wall).count();

    std::ostringstream out;
    out << std::setprecision(10);
    out << "{\"tcp\":\"" << o.tcp << "\",\"rate_bps\":" << o.rate << ",\"rtt_ms\":" << o.rtt_ms
        << ",\"queue_packets\":" << o.queue << ",\"loss\":" << o.loss << ",\"flows\":" << o.flows
        << ",\"mtu\":" << o.mtu << ",\"delack_count\":" << o.delack_count
        << ",\"delack_ms\":" << o.delack_ms << ",\"min_rto_ms\":" << o.min_rto_ms
        << ",\"initial_window\":" << o.initial_window << ",\"sack\":" << (o.sack ? "true" : "false")
        << ",\"hystart\":" << (o.hystart ? "true" : "false") << ",\"seconds\":" << o.seconds
        << ",\"warmup\":" << o.warmup << ",\"seed\":" << o.seed << ",\"throughput_bps\":" << sum
        << ",\"utilisation\":" << sum * o.mtu / (o.mtu - kHeaders) / o.rate
        << ",\"jain\":" << (squares > 0 ? sum * sum / (squares * flows.size()) : 0)
        << ",\"flow_bps\":[";
    for (size_t i = 0; i < flows.size(); ++i) {
        out << (i ? "," : "") << flows[i];
    }
    out << "],\"data_packets\":" << data << ",\"ack_packets\":" << acks
        << ",\"queue_drops\":" << end.queue_drops - begin.queue_drops
        << ",\"random_drops\":" << end.random_drops - begin.random_drops
        << ",\"recoveries\":" << end.recoveries - begin.recoveries
        << ",\"timeouts\":" << end.timeouts - begin.timeouts
        << ",\"queue_drops_in_all\":" << end.queue_drops << ",\"wall_s\":" << wall
        << ",\"data_packets_per_s\":" << data / wall
        << ",\"packets_per_s\":" << (data + acks) / wall << "}";
    return out.str();
}

} // namespace

int main(int argc, char** argv) {
    const Options o = Parse(argc, argv);
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(o.seed);
    ObjectFactory scheduler("ns3::" + o.scheduler);
    Simulator::SetScheduler(scheduler);
    SetTcp(o);

    NodeContainer nodes(2);
    NetDeviceContainer devices = Connect(o, nodes);
    InternetStackHelper internet;
    internet.SetIpv6StackInstall(false);
    internet.Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // Assigning addresses may install the default queue discipline: see that it did not.
    for (uint32_t i = 0; i < 2; ++i) {
        Ptr<TrafficControlLayer> layer = nodes.Get(i)->GetObject<TrafficControlLayer>();
        NS_ABORT_MSG_IF(layer && layer->GetRootQueueDiscOnDevice(devices.Get(i)),
                        "a queue discipline above the device");
    }

    Receivers receivers(nodes.Get(1), o.flows);
    Losses losses;
    Send(o, nodes.Get(0), interfaces.GetAddress(1), &losses);

    uint64_t random_drops = 0;
    devices.Get(1)->TraceConnectWithoutContext(
        "PhyRxDrop", Callback<void, Ptr<const Packet>>([&](Ptr<const Packet>) { ++random_drops; }));
    Ptr<Queue<Packet>> data = DynamicCast<PointToPointNetDevice>(devices.Get(0))->GetQueue();
    Ptr<Queue<Packet>> acks = DynamicCast<PointToPointNetDevice>(devices.Get(1))->GetQueue();
    auto read = [&] {
        return Counters{receivers.Bytes(),
                        data->GetTotalReceivedPackets(),
                        acks->GetTotalReceivedPackets(),
                        data->GetTotalDroppedPackets(),
                        random_drops,
                        losses.recoveries,
                        losses.timeouts,
                        std::chrono::steady_clock::now()};
    };

    Counters begin;
    Simulator::Schedule(Seconds(o.warmup), std::function<void()>([&] { begin = read(); }));
    Simulator::Stop(Seconds(o.seconds));
    Simulator::Run();
    Counters end = read();
    std::cout << Json(o, begin, end) << std::endl;
    Simulator::Destroy();
}
