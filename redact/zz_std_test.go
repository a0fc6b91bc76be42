package redact_test
import ("testing";"os";"fmt";"path/filepath";"strings";"runtime";"io/fs")
func TestZZStd(t *testing.T){
 e:=builtin(t); n:=0; m:=0; by:=map[string]int{}
 dirs:=[]string{filepath.Join(runtime.GOROOT(),"src")}
 if d:=os.Getenv("ZZDIR"); d!="" { dirs=strings.Split(d,":") }
 f2,_:=os.Create(os.Getenv("ZZOUT"))
 for _,d:=range dirs { filepath.WalkDir(d,func(p string,d fs.DirEntry,err error)error{
  if err!=nil||d.IsDir()||strings.HasSuffix(p,"_test.go")||strings.Contains(p,"/testdata/") {return nil}
  if os.Getenv("ZZDIR")=="" && !strings.HasSuffix(p,".go") {return nil}
  b,_:=os.ReadFile(p); if len(b)>4<<20 {return nil}
  n+=len(b)
  out,rep,err:=e.Text(nil,string(b)); if err!=nil{t.Error(p,err)}
  for r,k:=range rep.Counts{m+=k;by[r]+=k}
  if len(rep.Counts)>0 { a:=strings.Split(string(b),"\n"); o:=strings.Split(string(out),"\n"); j:=0; _=j
   for i:=range o { if strings.Contains(o[i],"[REDACTED:") && i<len(a) { fmt.Fprintf(f2,"%s: %.220s  =>  %.200s\n",filepath.Base(p),a[i],o[i]) } } }
  return nil})}
 fmt.Println(n,m,float64(m)/float64(n)*1e6,by)
}
