// Limits for Spring Boot: a servlet filter that asks Tollgate about every request.
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.time.Duration;
import java.util.*;
import org.springframework.stereotype.Component;
import org.springframework.web.filter.OncePerRequestFilter;

@Component
public class TollgateFilter extends OncePerRequestFilter {
  private static final URI CHECK = URI.create("http://127.0.0.1:8080/v1/check");
  private static final Set<Integer> REFUSALS = Set.of(403, 422, 429, 503);
  private final HttpClient tollgate = HttpClient.newBuilder().connectTimeout(Duration.ofMillis(100)).build();
  private final ObjectMapper json = new ObjectMapper();

  @Override
  protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws ServletException, IOException {
    try {
      var keys = Collections.list(request.getHeaders("x-api-key"));
      var asked = json.writeValueAsString(Map.of("method", request.getMethod(), "path", request.getRequestURI(),
          "ip", request.getRemoteAddr(), "headers", Map.of("x-api-key", keys)));
      var answer = tollgate.send(HttpRequest.newBuilder(CHECK).timeout(Duration.ofMillis(100))
          .header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(asked)).build(),
          HttpResponse.BodyHandlers.ofString());
      if (REFUSALS.contains(answer.statusCode())) {
        answer.headers().firstValue("retry-after").ifPresent(after -> response.setHeader("Retry-After", after));
        response.setStatus(answer.statusCode());
        return;
      }
      Thread.sleep(json.readTree(answer.body()).path("delay_ms").asLong(0));
    } catch (IOException e) {
      // Fail open: without Tollgate the application serves without limits.
      logger.warn("no answer from Tollgate: " + e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    chain.doFilter(request, response);
  }
}
