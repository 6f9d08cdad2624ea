// Limits for net/http: a handler that asks Tollgate about every request. Run it: go run main.go
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"net"
	"net/http"
	"time"
)

var tollgate = http.Client{Timeout: 100 * time.Millisecond}

func limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		asked, _ := json.Marshal(map[string]any{"method": r.Method, "path": r.URL.Path, "ip": ip,
			"headers": map[string][]string{"x-api-key": append([]string{}, r.Header["X-Api-Key"]...)}})
		answer, err := tollgate.Post("http://127.0.0.1:8080/v1/check", "application/json", bytes.NewReader(asked))
		if err != nil {
			// Fail open: without Tollgate the application serves without limits.
			log.Print("no answer from Tollgate: ", err)
			next.ServeHTTP(w, r)
			return
		}
		defer answer.Body.Close()
		switch answer.StatusCode {
		case 403, 422, 429, 503:
			if after := answer.Header.Get("Retry-After"); after != "" {
				w.Header().Set("Retry-After", after)
			}
			w.WriteHeader(answer.StatusCode)
			return
		}
		var decision struct{ DelayMs int64 `json:"delay_ms"` }
		if json.NewDecoder(answer.Body).Decode(&decision) == nil {
			time.Sleep(time.Duration(decision.DelayMs) * time.Millisecond)
		}
		next.ServeHTTP(w, r)
	})
}

func main() {
	rides := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"rides":[]}`)) })
	log.Fatal(http.ListenAndServe("127.0.0.1:3000", limit(rides)))
}
