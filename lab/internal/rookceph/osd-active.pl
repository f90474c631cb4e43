# Succeeds if the OSD of $OSD_DEVICE says at its admin socket that the monitors have taken it in.
use Socket;
open(my $whoami, '<', "$ENV{OSD_DEVICE}/whoami") or die "$ENV{OSD_DEVICE}/whoami: $!\n";
chomp(my $osd = 'osd.' . <$whoami>);
socket(my $daemon, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!\n";
connect($daemon, sockaddr_un("/run/ceph/$osd.asok")) or die "$osd does not answer: $!\n";
syswrite($daemon, qq({"prefix":"status","format":"json"}\0));
my $answer = join('', <$daemon>);
$answer =~ /"state":"(\w+)"/ or die "$osd does not say how it is\n";
$1 eq 'active' or die "$osd is $1\n";
