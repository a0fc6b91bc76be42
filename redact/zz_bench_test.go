package redact_test
import ("testing";"os";"bytes";"encoding/json")
func BenchmarkZZ(b *testing.B){
 e:=builtin(b); t,_:=os.ReadFile(os.Getenv("ZZF")); var recs [][]byte; n:=0
 for _,l:=range bytes.Split(t,[]byte("\n")) { var ev struct{Data json.RawMessage}; if json.Unmarshal(l,&ev)!=nil||len(ev.Data)==0{continue}
  recs=append(recs,ev.Data); n+=len(ev.Data); if n>24<<20 {break} }
 var dst []byte
 b.Run("redact",func(b *testing.B){ b.SetBytes(int64(n)); b.ReportAllocs(); s:=cpuSeconds()
 for b.Loop(){ for _,r:=range recs { dst,_,_=e.JSON(dst[:0],r) } }; reportCPU(b,s,n)})
}
