package attached

import (
	"slices"
	"testing"
)

// The text is as ip_vs_info_seq_show of net/netfilter/ipvs/ip_vs_ctl.c writes it.
func TestServices(t *testing.T) {
	got := services([]byte(`IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C0A80001:0050 rr  
  -> C0A80002:0050      Masq    1      0          0         
UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 wlc  
FWM  00000007 rr  
`))
	want := []Thing{
		{Kind: IPVS, Hook: "input", Name: "TCP 192.168.0.1:80"},
		{Kind: IPVS, Hook: "input", Name: "UDP [2001:0db8:0000:0000:0000:0000:0000:0001]:0035"},
		{Kind: IPVS, Hook: "input", Name: "FWM 00000007"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
