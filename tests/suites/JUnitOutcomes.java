import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Timer;
import java.util.TimerTask;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs JUnit's tests, or lists them. Writes a line for each step of a test: its name, "started" or the outcome, and what a failure says,
 * with tabs between. A test that hangs ends the process: "started" is then the last that is told about it.
 *
 * <p>Arguments: list CLASSES_DIRECTORY, or run FILE_OF_NAMES TIMEOUT_S.
 */
public final class JUnitOutcomes extends RunListener {
    private final long timeoutMs;
    private final Set<String> wanted;
    private final Timer timer = new Timer(true);
    private TimerTask deadline;
    private boolean failed;

    private JUnitOutcomes(Set<String> wanted, long timeoutMs) {
        this.wanted = wanted;
        this.timeoutMs = timeoutMs;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("list")) {
            list(Path.of(arguments[1]));
        } else {
            Set<String> wanted = new TreeSet<>(Files.readAllLines(Path.of(arguments[1])));
            new JUnitOutcomes(wanted, Long.parseLong(arguments[2]) * 1000).run();
        }
        // Drivers leave threads behind.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void list(Path directory) throws Exception {
        List<String> classes;
        try (Stream<Path> files = Files.walk(directory)) {
            classes = files.map(file -> directory.relativize(file).toString())
                    .filter(name -> name.endsWith("Test.class"))
                    .map(name -> name.replace(".class", "").replace('/', '.'))
                    .sorted()
                    .collect(Collectors.toList());
        }
        for (String name : classes) {
            for (Description test : Request.aClass(Class.forName(name)).getRunner().getDescription().getChildren()) {
                if (test.isTest() && !test.getClassName().startsWith("org.junit")) {
                    tell(nameOf(test), "listed", "");
                }
            }
        }
    }

    private void run() throws Exception {
        Map<String, List<String>> byClass = new TreeMap<>();
        for (String test : wanted) {
            byClass.computeIfAbsent(test.split("#")[0], name -> new ArrayList<>()).add(test);
        }
        JUnitCore core = new JUnitCore();
        core.addListener(this);
        for (String name : byClass.keySet()) {
            core.run(Request.aClass(Class.forName(name)).filterWith(new Filter() {
                @Override
                public boolean shouldRun(Description test) {
                    return test.isSuite() || wanted.contains(nameOf(test));
                }

                @Override
                public String describe() {
                    return "wanted";
                }
            }));
        }
    }

    private static String nameOf(Description test) {
        return test.getClassName() + "#" + test.getMethodName();
    }

    private static void tell(String test, String outcome, String output) {
        String line = output.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "").replace("\t", " ");
        System.out.println("\noutcome\t" + test + "\t" + outcome + "\t" + line.substring(0, Math.min(line.length(), 6000)));
    }

    /** What happens in front of a class happens to each of its tests. */
    private void tellAll(Description of, String outcome, String output) {
        if (of.isTest()) {
            tell(nameOf(of), outcome, output);
            return;
        }
        wanted.stream().filter(test -> test.startsWith(of.getClassName() + "#")).forEach(test -> tell(test, outcome, output));
    }

    @Override
    public void testStarted(Description test) {
        failed = false;
        tell(nameOf(test), "started", "");
        deadline = new TimerTask() {
            @Override
            public void run() {
                Runtime.getRuntime().halt(3);
            }
        };
        timer.schedule(deadline, timeoutMs);
    }

    @Override
    public void testFailure(Failure failure) {
        failed = true;
        tellAll(failure.getDescription(), "failed", failure.getTrace());
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        failed = true;
        tellAll(failure.getDescription(), "skipped", failure.getTrace());
    }

    @Override
    public void testIgnored(Description test) {
        tellAll(test, "skipped", "ignored");
    }

    @Override
    public void testFinished(Description test) {
        deadline.cancel();
        if (!failed) {
            tell(nameOf(test), "passed", "");
        }
    }
}
