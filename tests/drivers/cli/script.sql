-- What a person may type: the command line clients run it straight at a server and through Weir, and must print the same.
SELECT CURRENT_USER();
CREATE TABLE people (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(50) CHARACTER SET utf8mb4, born DATE);
INSERT INTO people (name, born) VALUES ('Zoë', '1990-02-03'), ('日本', NULL), ('it''s', '2001-01-01');
SELECT * FROM people ORDER BY id;
SELECT LAST_INSERT_ID() > 0, ROW_COUNT();
SELECT name, HEX(name) FROM people WHERE name LIKE 'Z%'\G
UPDATE people SET born = '2000-01-01' WHERE born IS NULL;
SELECT CAST('12x' AS SIGNED), 1/0;
SHOW WARNINGS;
DROP TABLE IF EXISTS nobody;
SELECT * FROM nobody;
INSERT INTO people (id, name) SELECT MIN(id), 'twice' FROM people;
START TRANSACTION;
DELETE FROM people;
SELECT COUNT(*) FROM people;
ROLLBACK;
SELECT COUNT(*) FROM people;
SET @answer = 42;
SET time_zone = '+02:00', sql_mode = CONCAT(@@sql_mode, ',PIPES_AS_CONCAT');
SELECT @answer, @@time_zone, 'a' || 'b';
PREPARE s FROM 'SELECT ? + 1';
EXECUTE s USING @answer;
DEALLOCATE PREPARE s;
CREATE TEMPORARY TABLE passing AS SELECT 1 AS one;
SELECT * FROM passing;
DELIMITER //
CREATE PROCEDURE two(IN n INT) BEGIN SELECT n; SELECT n * 2 AS doubled; END//
CALL two(21)//
DELIMITER ;
SELECT 1; SELECT 2; SELECT 3;
EXPLAIN SELECT 1;
SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE';
SHOW CREATE TABLE people;
SELECT SQL_CALC_FOUND_ROWS name FROM people ORDER BY id LIMIT 1;
SELECT FOUND_ROWS();
SELECT REPEAT('x', 100);
SELECT NULL, '', 0, 1.50, TRUE, NOW() > '2020-01-01', 0x41, b'1';
HELP 'SELECT_nothing_of_the_kind';
SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'grün';
DO SLEEP(0);
LOCK TABLES people WRITE;
INSERT INTO people (name) VALUES ('locked');
UNLOCK TABLES;
SELECT COUNT(*) FROM people;
USE nowhere_at_all;
SELECT COUNT(*) FROM people;
DROP TABLE people;
