// Package routers shows the middleware behind routers other than http.ServeMux. It is a
// module of its own, so that headgate does not depend on them.
package routers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/middleware"
)

const rules = `
domain: shop
descriptors:
  - key: client
    limits: [{algorithm: sliding_log, limit: 1, window: 1h}]
  - key: route
    value: /items/{id}
    limits: [{algorithm: sliding_log, limit: 1, window: 1h}]
`

// twice sends two requests of one client.
func twice(server http.Handler) {
	for range 2 {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/items/7", nil))
		fmt.Println(w.Code)
	}
}

func open() *headgate.Limiter {
	limiter, err := headgate.Open(context.Background(),
		headgate.Options{Rules: []headgate.Rules{headgate.YAML("rules.yaml", rules)}})
	if err != nil {
		panic(err)
	}
	return limiter
}

// chi takes the middleware as it is. Its pattern of a route is known behind Group or With.
func Example_chi() {
	limiter := open()
	defer limiter.Close()
	route := func(r *http.Request) (string, bool) {
		pattern := chi.RouteContext(r.Context()).RoutePattern()
		return pattern, pattern != ""
	}
	limit := middleware.Handler(limiter, middleware.Config{
		Domain: "shop", Descriptors: []middleware.Descriptor{{{Key: "route", Value: route}}},
	})
	router := chi.NewRouter()
	router.With(limit).Get("/items/{id}",
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, chi.URLParam(r, "id")) })
	twice(router)
	// Output:
	// 200
	// 429
}

// echo wraps it.
func Example_echo() {
	limiter := open()
	defer limiter.Close()
	router := echo.New()
	router.Use(echo.WrapMiddleware(middleware.Handler(limiter, middleware.Config{Domain: "shop"})))
	router.GET("/items/:id", func(c echo.Context) error { return c.String(http.StatusOK, c.Param("id")) })
	twice(router)
	// Output:
	// 200
	// 429
}

// gin has no adapter for middleware of net/http. Around the whole router it needs none.
func Example_gin() {
	limiter := open()
	defer limiter.Close()
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.GET("/items/:id", func(c *gin.Context) { c.String(http.StatusOK, c.Param("id")) })
	twice(middleware.Handler(limiter, middleware.Config{Domain: "shop"})(router))
	// Output:
	// 200
	// 429
}
